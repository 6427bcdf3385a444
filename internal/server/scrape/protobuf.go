package scrape

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimitd/ratelimitd/internal/server/pages"
)

// Numbers of fields, from the package io.prometheus.client.
const (
	familyName, familyHelp, familyType, familyMetric = 1, 2, 3, 4
	metricLabel, metricCounter                       = 1, 3
	labelName, labelValue                            = 1, 2
	counterValue                                     = 1

	typeCounter = 0
)

// protobuf is delimited messages of io.prometheus.client.MetricFamily. A long family
// is several messages, since the length stands before each: Prometheus reads them one
// after the other, and takes the series of each.
type protobuf struct {
	message []byte
	head    int // the length of what describes the family, before its metrics
}

func (p *protobuf) begin(_ *pages.Writer, f *Family) {
	p.message = appendText(p.message[:0], familyName, f.Name)
	p.message = appendText(p.message, familyHelp, f.Help)
	p.message = protowire.AppendTag(p.message, familyType, protowire.VarintType)
	p.message = protowire.AppendVarint(p.message, typeCounter)
	p.head = len(p.message)
}

func (p *protobuf) series(out *pages.Writer, f *Family, values [][]byte, n uint64) {
	const counter = 1 + 8 // tag and number
	metric := protowire.SizeTag(metricCounter) + protowire.SizeBytes(counter)
	for i, label := range f.Labels {
		if !f.isShown(i, values) {
			continue
		}
		metric += protowire.SizeTag(metricLabel) + protowire.SizeBytes(pairSize(label, values[i]))
	}
	m := protowire.AppendTag(p.message, familyMetric, protowire.BytesType)
	m = protowire.AppendVarint(m, uint64(metric))
	for i, label := range f.Labels {
		if !f.isShown(i, values) {
			continue
		}
		m = protowire.AppendTag(m, metricLabel, protowire.BytesType)
		m = protowire.AppendVarint(m, uint64(pairSize(label, values[i])))
		m = appendText(m, labelName, label)
		m = protowire.AppendTag(m, labelValue, protowire.BytesType)
		m = protowire.AppendBytes(m, values[i])
	}
	m = protowire.AppendTag(m, metricCounter, protowire.BytesType)
	m = protowire.AppendVarint(m, counter)
	m = protowire.AppendTag(m, counterValue, protowire.Fixed64Type)
	p.message = protowire.AppendFixed64(m, math.Float64bits(float64(n)))
	if len(p.message) >= pages.Chunk {
		p.end(out, f)
	}
}

// end ends the message. What follows is of the same family.
func (p *protobuf) end(out *pages.Writer, _ *Family) {
	if len(p.message) == p.head {
		return
	}
	out.Bytes = protowire.AppendBytes(out.Bytes, p.message)
	p.message = p.message[:p.head]
}

func pairSize(label string, value []byte) int {
	return protowire.SizeTag(labelName) + protowire.SizeBytes(len(label)) + protowire.SizeTag(labelValue) + protowire.SizeBytes(len(value))
}

func appendText(dst []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, field, protowire.BytesType), text)
}
