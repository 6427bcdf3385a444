package redisstore

// SetFormats makes a daemon write and read other state formats, as one of a
// later version would.
func (f *Fleet) SetFormats(writes int, reads ...int) {
	f.self.StateFormat, f.self.Reads = writes, reads
}
