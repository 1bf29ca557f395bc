package metrics

import "github.com/prometheus/client_golang/prometheus"

// Inputs are the metrics of jobs' input files.
type Inputs struct {
	files, bytes *prometheus.CounterVec
}

func newInputs(w Words) Inputs {
	return Inputs{
		files: byWord(w.Inputs, "input_files_total",
			"Input files of jobs: fetched from storage, cached (found in the cache), evicted from the cache, or found changed there.", "result"),
		bytes: byWord(w.Inputs, "input_bytes_total", "Bytes of these input files.",
			"result"),
	}
}

func (i *Inputs) collectors() []prometheus.Collector { return []prometheus.Collector{i.files, i.bytes} }

// CountInputs counts files, with a word of [Words.Inputs].
func (i *Inputs) CountInputs(result string, files, bytes int64) {
	i.files.WithLabelValues(result).Add(amount(files))
	i.bytes.WithLabelValues(result).Add(amount(bytes))
}
