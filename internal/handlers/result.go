package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// encodeResult is a result as JSON in one line, with names as people write them.
func encodeResult(result any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(result); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// portion says how much of a whole is done, in the whole's unit.
func portion(done, whole int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit, divisor := 0, int64(1)
	for unit < len(units)-1 && whole/divisor >= 1024 {
		unit, divisor = unit+1, divisor*1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d of %d B", done, whole)
	}
	return fmt.Sprintf("%.1f of %.1f %s", float64(done)/float64(divisor), float64(whole)/float64(divisor), units[unit])
}
