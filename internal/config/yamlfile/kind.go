package yamlfile

// Kind says what the value of a field may be, for the schema of the file. It is one of
// the types of this file.
type Kind any

type (
	// Range holds the whole numbers from Min to Max.
	Range struct{ Min, Max int64 }
	// Flag is true or false or, if not empty, the word Or.
	Flag struct{ Or string }
	// Words are the texts that a field may have.
	Words []string
	// Text is any scalar or, with a Pattern, a text that this regular expression of both Go
	// and JavaScript matches.
	Text struct{ Pattern string }
	// Name is what Reader.Name reads, of at most Longest bytes.
	Name struct {
		Longest    int
		MayBeEmpty bool
	}
	// ListOf is a list of at least Least items.
	ListOf struct {
		Of    Kind
		Least int
	}
	// MapOf is a mapping of names of at most Longest bytes to values.
	MapOf struct {
		Longest int
		Of      Kind
	}
	// Either is one of several kinds.
	Either []Kind
	// Ref is a mapping of the level that the schema calls so.
	Ref string
	// Any is any mapping.
	Any struct{}
)
