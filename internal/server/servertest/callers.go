package servertest

import (
	"context"
	"crypto/sha256"
	"fmt"

	"google.golang.org/grpc/metadata"
)

// SumOf returns the SHA-256 of a token as files of callers and members have it.
func SumOf(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }

// WithToken returns a context in which gRPC shows a token, if it is not empty.
func WithToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}
