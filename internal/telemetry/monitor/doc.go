// Package monitor serves a worker's health and metrics over HTTP.
//
//	GET /healthz   {"ApplicationHealthState":"Healthy"}    the Application Health extension
//	GET /livez     the same, with status 503 if Unhealthy  the liveness probe of Kubernetes
//	GET /metrics   the text format of Prometheus           a scraper
//
// The extension (version 2.0, its source in Azure/applicationhealth-extension-linux,
// plugins/apphealth) requests http://localhost:PORT/PATH, waits 30 s, follows no
// redirect, and wants a status of 2xx and a JSON object whose field
// ApplicationHealthState is "Healthy" or "Unhealthy", in these letters. Anything
// else is Unknown, which automatic repairs treat like Unhealthy; so an unhealthy
// worker answers 200 there too. Fields that the extension does not know are ignored,
// except customMetrics, which means something to it.
//
// The responses have no secrets, and no request changes anything, so there is no
// authentication. The listen address, by default loopback, limits who has access.
package monitor
