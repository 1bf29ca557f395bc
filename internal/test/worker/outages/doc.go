// Package outages proves that storage, the metadata service and the token endpoint may be
// away, slow or wrong for minutes: no job is cancelled or lost in that time, and
// the log names the cause in few lines.
package outages
