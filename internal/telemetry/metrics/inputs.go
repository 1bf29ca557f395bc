package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spotworker/spotworker/internal/telemetry/observe"
)

// Inputs are the metrics of jobs' input files.
type Inputs struct {
	files, bytes *prometheus.CounterVec
}

func newInputs(r registry) Inputs {
	return Inputs{
		files: r.byWord(observe.Inputs, "input_files_total",
			"Input files of jobs: fetched from storage, cached (found in the cache), evicted from the cache, or found changed there.", "result"),
		bytes: r.byWord(observe.Inputs, "input_bytes_total", "Bytes of these input files.",
			"result"),
	}
}

func (i *Inputs) count(e observe.InputsUsed) {
	i.files.WithLabelValues(e.Result).Add(amount(e.Files))
	i.bytes.WithLabelValues(e.Result).Add(amount(e.Bytes))
}
