// Package race tells tests whether they run under the race detector, which makes them
// five to ten times slower.
package race
