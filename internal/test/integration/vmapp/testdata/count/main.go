// Count is an unchanged program: it keeps a number in memory, and ends when there is a file
// finish. If there is a file attack, it connects to the address in it, and writes to a file answer
// whether it could. It is one file without libraries, since CRIU cannot freeze a program whose libraries are
// on the overlay that is the machine's root.
package main

import (
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	n := 0
	for {
		if n < 20 {
			n++
		}
		if _, err := os.Stat("finish"); err == nil && n == 20 {
			break
		}
		if address, err := os.ReadFile("attack"); err == nil {
			attack(string(address))
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := os.WriteFile(os.Getenv("SPOTWORKER_RESULT"), fmt.Appendln(nil, n), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func attack(address string) {
	answer := "reached"
	if conn, err := net.DialTimeout("tcp", address, time.Second); err != nil {
		answer = err.Error()
	} else {
		_ = conn.Close()
	}
	err := os.WriteFile("unfinished", []byte(answer), 0o600)
	if err == nil {
		err = os.Rename("unfinished", "answer")
	}
	if err == nil {
		err = os.Remove("attack")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
