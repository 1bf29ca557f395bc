//go:build !unix

package archive

import "errors"

func makePipe(string) error { return errors.ErrUnsupported }

func makePipeAt(string) error { return errors.ErrUnsupported }
