package push

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/klauspost/compress/s2"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"
)

// stale is the value that ends a series.
const stale = 0x7ff0000000000002

// label is a name and a value.
type label struct{ name, value string }

// sample is one value of a series. Its labels are in order.
type sample struct {
	labels []label
	value  float64
}

// samplesOf returns the values of all families, with the labels that each series gets.
func samplesOf(families []*dto.MetricFamily, with []label) (all []sample) {
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all = append(all, samplesOfMetric(f.GetName(), f.GetType(), m, with)...)
		}
	}
	return all
}

func samplesOfMetric(name string, kind dto.MetricType, m *dto.Metric, with []label) (all []sample) {
	add := func(suffix string, value float64, more ...label) {
		labels := append([]label{{"__name__", name + suffix}}, with...)
		for _, l := range m.GetLabel() {
			labels = append(labels, label{l.GetName(), l.GetValue()})
		}
		labels = append(labels, more...)
		slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.name, b.name) })
		all = append(all, sample{labels, value})
	}
	switch kind {
	case dto.MetricType_COUNTER:
		add("", m.GetCounter().GetValue())
	case dto.MetricType_GAUGE:
		add("", m.GetGauge().GetValue())
	case dto.MetricType_HISTOGRAM:
		h := m.GetHistogram()
		for _, b := range h.GetBucket() {
			add("_bucket", float64(b.GetCumulativeCount()), label{"le", number(b.GetUpperBound())})
		}
		add("_bucket", float64(h.GetSampleCount()), label{"le", "+Inf"})
		add("_sum", h.GetSampleSum())
		add("_count", float64(h.GetSampleCount()))
	case dto.MetricType_SUMMARY:
		s := m.GetSummary()
		for _, q := range s.GetQuantile() {
			add("", q.GetValue(), label{"quantile", number(q.GetQuantile())})
		}
		add("_sum", s.GetSampleSum())
		add("_count", float64(s.GetSampleCount()))
	default:
		add("", m.GetUntyped().GetValue())
	}
	return all
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// encode returns a WriteRequest with the values at that time, in milliseconds, compressed.
// With ends, each series ends a millisecond later.
func encode(samples []sample, at int64, ends bool) []byte {
	const timeseries, labels, values = 1, 1, 2 // fields of WriteRequest and TimeSeries
	var request []byte
	for _, s := range samples {
		var series []byte
		for _, l := range s.labels {
			var pair []byte
			pair = protowire.AppendString(protowire.AppendTag(pair, 1, protowire.BytesType), l.name)
			pair = protowire.AppendString(protowire.AppendTag(pair, 2, protowire.BytesType), l.value)
			series = protowire.AppendBytes(protowire.AppendTag(series, labels, protowire.BytesType), pair)
		}
		series = protowire.AppendBytes(protowire.AppendTag(series, values, protowire.BytesType), encodeValue(math.Float64bits(s.value), at))
		if ends {
			series = protowire.AppendBytes(protowire.AppendTag(series, values, protowire.BytesType), encodeValue(stale, at+1))
		}
		request = protowire.AppendBytes(protowire.AppendTag(request, timeseries, protowire.BytesType), series)
	}
	return s2.EncodeSnappy(nil, request)
}

func encodeValue(bits uint64, at int64) (value []byte) {
	value = protowire.AppendFixed64(protowire.AppendTag(value, 1, protowire.Fixed64Type), bits)
	return protowire.AppendVarint(protowire.AppendTag(value, 2, protowire.VarintType), uint64(at))
}
