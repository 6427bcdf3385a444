package endpoint

// stackNeed is about how many bytes of stack a request takes from its handler on.
const stackNeed = 6 << 10

// growStack has the goroutine's stack grow, if it has to, while few frames are on it.
// Each collection of garbage halves the stacks of the workers that wait for requests,
// and a stack that grows is copied frame by frame, which costs some 600 instructions for
// each: 20,000 in the middle of a decision, and a third of that here. It is noinline,
// so that its frame has room for need, and it never touches that room.
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
