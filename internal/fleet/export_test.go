package fleet

// IsListening reports whether what is asked from now on is heard.
func (l *Line) IsListening() bool { return l.isListening.Load() }
