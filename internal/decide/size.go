package decide

// Holds estimates the bytes of the message, its entries, keys and decisions.
func (c *Call) Holds() int64 { return int64(4*c.Size + 512*(len(c.Descriptors)-1)) }

// What a hit takes until a store that waits has decided it, in bytes beside the text of its
// key: in the call, on its way to the store, there once more for each hash tag, and once more
// with the fallback if there is no answer. To settle it takes the bills as well.
const (
	hitBytes    = 1300
	settleBytes = 1800
	keyCopies   = 4
	// freeHits are part of what any call is charged for.
	freeHits = 4
)

// HitBytes estimates how many bytes the hits of a checked call take while a store that waits
// decides it, by the rule of its domain that has the most limits; 0 for few hits.
func (c *Call) HitBytes() int64 {
	rules := c.decider.Live.Rules()
	if rules == nil || len(c.Descriptors)*rules.MaxLimits() <= freeHits {
		return 0
	}
	domain := rules.Domain(c.Domain)
	if domain == nil {
		return 0
	}
	hits := len(c.Descriptors) * domain.MaxLimits()
	if hits <= freeHits {
		return 0
	}
	each := hitBytes
	if c.IsSettlement {
		each = settleBytes
	}
	return int64(hits*each + keyCopies*domain.MaxLimits()*c.textSize)
}
