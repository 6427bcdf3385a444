package decisionlog

// ReadAny reads a line through encoding/json alone.
func ReadAny(l *Line, line []byte) error { return l.readAny(line) }
