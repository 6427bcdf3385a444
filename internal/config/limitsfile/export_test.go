package limitsfile

import (
	"github.com/ratelimitd/ratelimitd/internal/config/limitsfile/parser"
	"github.com/ratelimitd/ratelimitd/internal/config/rules"
)

// LoadInPieces is Load with pieces of another size, in bytes. It also returns how many
// files were read in pieces.
func (o Options) LoadInPieces(size int, paths ...string) (r *rules.Set, files int, err error) {
	src, err := readSource(o.Input, paths...)
	if err != nil {
		return nil, 0, err
	}
	for _, f := range src.files {
		p := parser.NewShared(o.Lenient, o.MergeDomains).Parser(f.name, len(f.data))
		if text, err := p.Utf8(f.data); err == nil && p.InPieces(text, size) {
			files++
		}
	}
	l := newLoader(o)
	l.pieceSize = size
	r, err = src.rules(l)
	return r, files, err
}
