// Package monitor answers those who look after a worker from outside, over HTTP.
//
//	GET /healthz   {"ApplicationHealthState":"Healthy"}   the Application Health extension
//	GET /metrics   the text format of Prometheus          a scraper
//
// The extension (version 2.0, its source in Azure/applicationhealth-extension-linux,
// plugins/apphealth) asks http://localhost:PORT/PATH, waits 30 s, follows no
// redirect, and wants a status of 2xx and a JSON object whose field
// ApplicationHealthState is "Healthy" or "Unhealthy", in these letters. Anything
// else is Unknown, which automatic repairs treat like Unhealthy; so an unhealthy
// worker answers 200 too. Fields that the extension does not know are ignored,
// except customMetrics, which means something to it.
//
// There is nothing secret in the answers and no way to change anything, and so
// no sign-in. Who may ask is decided by the address to listen on, by default
// loopback.
package monitor
