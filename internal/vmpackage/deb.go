package vmpackage

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Debian package is an archive of ar: a line, and a header of this size before each member.
const (
	arMagic  = "!<arch>\n"
	arHeader = 60
	arSize   = 48 // where the header has the member's size, of 10 digits
)

// readDeb returns the files that a Debian package installs.
func readDeb(name string) (files []file, at time.Time, err error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, at, err
	}
	defer in.Close()
	magic := make([]byte, len(arMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != arMagic {
		return nil, at, fmt.Errorf("it is no Debian package (%w)", err)
	}
	for header := make([]byte, arHeader); ; {
		if _, err := io.ReadFull(in, header); err != nil {
			return nil, at, fmt.Errorf("it has no data.tar.gz: %w", err)
		}
		size, err := strconv.ParseInt(strings.TrimSpace(string(header[arSize:arSize+10])), 10, 64)
		if err != nil {
			return nil, at, fmt.Errorf("size of a member: %w", err)
		}
		if strings.HasPrefix(string(header), "data.tar.gz") {
			return readFiles(io.LimitReader(in, size))
		}
		if _, err := in.Seek(size+size%2, io.SeekCurrent); err != nil {
			return nil, at, err
		}
	}
}
