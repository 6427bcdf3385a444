package config

// LoadRulesInPieces is LoadRules with pieces of another size, in bytes. It
// also returns how many files were read in pieces.
func (o LoadOptions) LoadRulesInPieces(size int, paths ...string) (r *Rules, files int, err error) {
	src, err := readSource(o.Input, paths...)
	if err != nil {
		return nil, 0, err
	}
	l := newLoader(o)
	l.pieceSize = size
	r, err = src.rules(l)
	for _, p := range l.parsers {
		if p.cutter != nil {
			files++
		}
	}
	return r, files, err
}
