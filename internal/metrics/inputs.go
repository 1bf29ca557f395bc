package metrics

import "github.com/prometheus/client_golang/prometheus"

// Inputs are the metrics of jobs' input files.
type Inputs struct {
	files, bytes *prometheus.CounterVec
}

func newInputs(w Words) Inputs {
	return Inputs{
		files: byWord(w.Inputs, "input_files_total",
			"Input files of jobs: fetched from storage, found in the cache of the machine (cached), or evicted from it to make room.", "result"),
		bytes: byWord(w.Inputs, "input_bytes_total", "Bytes of the input files of jobs that were fetched, cached or evicted.", "result"),
	}
}

func (i *Inputs) collectors() []prometheus.Collector { return []prometheus.Collector{i.files, i.bytes} }

// CountInputs counts files, with a word of [Words.Inputs].
func (i *Inputs) CountInputs(result string, files, bytes int64) {
	i.files.WithLabelValues(result).Add(float64(files))
	i.bytes.WithLabelValues(result).Add(float64(bytes))
}
