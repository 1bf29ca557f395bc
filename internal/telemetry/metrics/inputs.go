package metrics

import "github.com/prometheus/client_golang/prometheus"

// Inputs are the metrics of jobs' input files.
type Inputs struct {
	files, bytes *counters
}

func newInputs(g *guard, w Words) Inputs {
	return Inputs{
		files: g.byWord(w.Inputs, "input_files_total",
			"Input files of jobs: fetched from storage, cached (found in the cache), evicted from the cache, or found changed there.", "result"),
		bytes: g.byWord(w.Inputs, "input_bytes_total", "Bytes of these input files.",
			"result"),
	}
}

func (i *Inputs) collectors() []prometheus.Collector { return []prometheus.Collector{i.files, i.bytes} }

// CountInputs counts files, with a word of [Words.Inputs].
func (i *Inputs) CountInputs(result string, files, bytes int64) {
	i.files.add(float64(files), result)
	i.bytes.add(float64(bytes), result)
}
