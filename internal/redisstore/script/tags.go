package script

import (
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// ClusterSlots is how many slots a cluster has.
const ClusterSlots = 16384

// Tags are the hash tags of a store's keys. The slot of the i-th of n is in the middle
// of the i-th of n equal parts of all slots, so that the tags are spread over the
// masters of any cluster as evenly as n allows.
type Tags []string

// NewTags returns n tags, 1 to ClusterSlots; always the same for the same n.
func NewTags(n int) Tags {
	t := make(Tags, n)
	wanted := make(map[uint16]int, n)
	for i := range n {
		wanted[uint16((2*i+1)*ClusterSlots/(2*n))] = i
	}
	for k := int64(0); len(wanted) > 0; k++ {
		tag := strconv.FormatInt(k, 36)
		slot := crc16(tag) % ClusterSlots
		if i, ok := wanted[slot]; ok {
			t[i] = tag
			delete(wanted, slot)
		}
	}
	return t
}

// Of returns the index of the tag for a place. All daemons that share keys must agree
// on it: it is part of the store's format.
func (t Tags) Of(place []byte) int { return int(xxhash.Sum64(place) % uint64(len(t))) }

// crc16 is the CRC16-CCITT (XMODEM) that gives the slot of a hash tag, as in
// appendix A of the Redis Cluster specification.
func crc16(s string) (crc uint16) {
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
