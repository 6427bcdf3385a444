package integration

import (
	"context"
	bigendian "encoding/binary"
)

func halfOpenAttackers() []attacker {
	return []attacker{
		{"calls without a message", halfOpen(shouldRateLimit, 0, 0)},
		{"calls that lack a byte", halfOpen(shouldRateLimit, largeMessage, 16<<10)},
		{"calls that lack a byte in small frames", halfOpen(takeOne, largeMessage, 1000)},
		{"calls that lack a byte in tiny frames", halfOpen(takeMany, 60_000, 1)},
		{"streams that lack a byte", halfOpen(takeStream, largeMessage, 16<<10)},
		{"streams that lack a byte in small frames", halfOpen(takeStream, largeMessage, 1000)},
		{"reflection that lacks a byte", halfOpen(reflects, largeMessage, 16<<10)},
		{"health checks that lack a byte", halfOpen(healthCheck, largeMessage, 16<<10)},
		{"calls that lack their end", halfOpenEnd},
	}
}

// halfOpen opens as many calls as it can. It sends most of a message on each,
// in frames of a size.
func halfOpen(path string, size, frame int) func(ctx context.Context, v *target) {
	return func(ctx context.Context, v *target) {
		message := append(bigendian.BigEndian.AppendUint32([]byte{0}, uint32(size+1)), make([]byte, size)...)
		holdOpen(ctx, v, 2000, func(h *rawHTTP2) {
			stream := h.open(path)
			if size > 0 {
				sendAll(ctx, h, stream, message, frame, false)
			}
		})
	}
}

// halfOpenEnd sends whole messages and does not end their calls.
func halfOpenEnd(ctx context.Context, v *target) {
	message := grpcMessage(manyTakes(1000))
	holdOpen(ctx, v, 2000, func(h *rawHTTP2) {
		sendAll(ctx, h, h.open(takeMany), message, 16<<10, false)
	})
}
