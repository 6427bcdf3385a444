package endpoint

// stackNeed is about how many bytes of stack a request needs after its handler begins.
const stackNeed = 6 << 10

// growStack makes the goroutine's stack grow, if necessary, while few frames are on it.
// Each garbage collection halves the stacks of the workers that wait for requests, and
// a stack that grows is copied frame by frame, at some 600 instructions for each:
// 20,000 in the middle of a decision, and a third of that here. It is noinline, so that
// its frame has room for need, and it never touches that room.
//
//go:noinline
func growStack(touch bool) {
	if touch {
		var need [stackNeed]byte
		use(&need)
	}
}

//go:noinline
func use(need *[stackNeed]byte) { need[0]++ }
