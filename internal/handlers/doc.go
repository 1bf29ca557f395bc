// Package handlers holds the kinds of jobs that come with the worker.
package handlers
