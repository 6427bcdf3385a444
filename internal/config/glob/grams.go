package glob

// gram is up to gramSize bytes between two stars, the last one lowest: a text no longer
// than that, or a run of a longer one.
type gram struct {
	bytes uint64
	size  int
}

const (
	gramSize = 8
	// tailSize is how many bytes at the end of a gram are looked at first. Grams end at
	// few places of a value, so one lookup covers all sizes from tailSize up.
	tailSize = 4
)

// lastGram returns the gram of the last bytes shifted in.
func lastGram(bytes uint64, size int) gram { return gram{bytes & (1<<(8*size) - 1), size} }

// hash is unique among grams of one size.
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

// gramFiles files patterns by their grams.
type gramFiles struct {
	patternFiles
	// sizes has a bit for each size of a gram in it.
	sizes uint
	// tails holds the last tailSize bytes of all grams that are at least that long.
	tails hashFilter
}

func (f *gramFiles) seal() {
	f.patternFiles.seal()
	f.tails = newHashFilter(len(f.chains))
	for hash := range f.chains {
		f.tails.add(tailHash(hash))
	}
}
