package top

// LookBack has somebody look at what ended, until release is called.
func (t *Top) LookBack() (release func()) {
	t.past.Lock()
	return t.past.Unlock
}
