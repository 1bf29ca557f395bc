//go:build !linux

package main

import "log"

func main() { log.Fatal("bench runs on Linux: it binds processes to cores and reads /proc") }
