// Package web holds the page of spotctl web to its promises in Chromium. It consists of tests
// only.
package web
