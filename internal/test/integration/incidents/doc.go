// Package incidents replays recorded incidents against the alerts of infra/prometheus.
//
//	real workers on a local Azure ──▶ scrapes of /metrics ──▶ testdata/*.txt
//	testdata/*.txt + alerts.yml   ──▶ promtool            ──▶ which alerts fire, and when
//
// A recording is made once (go test -tags integration -run TestRecord -record): two or
// three worker processes, scraped every 15 s, with the incident in the middle. The replay
// takes seconds and belongs to CI. promtool comes with the Debian package prometheus.
package incidents
