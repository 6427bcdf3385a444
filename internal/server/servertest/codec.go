package servertest

// RawCodec sends and receives the bytes of messages.
type RawCodec struct{}

// Marshal implements encoding.Codec.
func (RawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

// Unmarshal implements encoding.Codec.
func (RawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }

// Name implements encoding.Codec.
func (RawCodec) Name() string { return "proto" }
