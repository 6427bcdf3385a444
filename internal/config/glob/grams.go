package glob

// gram is up to gramSize bytes between two stars, the last one lowest: a text
// that is no longer than that, or a run of a longer one.
type gram struct {
	bytes uint64
	size  int
}

const (
	gramSize = 8
	// tailSize is how many bytes at the end of a gram are looked at first. Few
	// places in a value end a gram, so one look does for all sizes from
	// tailSize up.
	tailSize = 4
)

// lastGram is the gram of the last bytes that were shifted in.
func lastGram(bytes uint64, size int) gram { return gram{bytes & (1<<(8*size) - 1), size} }

// hash differs among grams of one size.
func (g gram) hash() uint64 { return g.bytes ^ uint64(g.size)<<56 }

func tailHash(bytes uint64) uint64 { return bytes & (1<<(8*tailSize) - 1) }

// eachGram calls f with all grams of a text.
func eachGram(text string, f func(gram)) {
	size := min(len(text), gramSize)
	var bytes uint64
	for i := range len(text) {
		bytes = bytes<<8 | uint64(text[i])
		if i >= size-1 {
			f(lastGram(bytes, size))
		}
	}
}

// eachGram calls f with all grams between stars.
func (p *pattern) eachGram(f func(gram)) {
	for i := range p.middle {
		eachGram(p.middle[i].text, f)
	}
}

func newInnerText(text string) innerText {
	m := innerText{text: text}
	eachGram(text, func(g gram) { m.slot = placeSlot(g) })
	return m
}

// gramFiles are the files of patterns by grams.
type gramFiles struct {
	patternFiles
	// sizes has a bit for each size that a gram here has.
	sizes uint
	// tails are the last tailSize bytes of all grams that have as many.
	tails hashFilter
}

func (f *gramFiles) seal() {
	f.patternFiles.seal()
	f.tails = newHashFilter(len(f.chains))
	for hash := range f.chains {
		f.tails.add(tailHash(hash))
	}
}
