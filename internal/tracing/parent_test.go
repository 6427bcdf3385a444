package tracing

import (
	"testing"

	"go.opentelemetry.io/otel/propagation"
)

// FuzzIsUnsampled compares the short way with the SDK's: it knows only
// traceparents that the SDK takes for unsampled.
func FuzzIsUnsampled(f *testing.F) {
	const usual = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	if !isUnsampled(usual) {
		f.Error("it does not know the usual one")
	}
	f.Add(usual)
	for i := range usual {
		for _, c := range []string{"", "0", "1", "g", "F", "-", "\xff"} {
			f.Add(usual[:i] + c + usual[i+1:])
		}
	}
	f.Add("00-00000000000000000000000000000000-b7ad6b7169203331-00")
	f.Add("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-00")
	f.Fuzz(func(t *testing.T, text string) {
		if !isUnsampled(text) {
			return
		}
		parent := extract(propagation.TraceContext{}, onlyTraceparent(text))
		if !parent.IsValid() || parent.IsSampled() {
			t.Errorf("%q: the SDK reads %v", text, parent)
		}
	})
}
