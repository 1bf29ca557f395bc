package handlers

import (
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"hash"
)

// saveHash returns the state of a SHA-256 under way, which the Go project keeps
// readable from release to release (documentation of package hash).
func saveHash(sum hash.Hash) ([]byte, error) {
	marshaler, ok := sum.(encoding.BinaryMarshaler)
	if !ok {
		return nil, errors.New("this build's SHA-256 cannot save its state")
	}
	state, err := marshaler.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("save the state of the hash: %w", err)
	}
	return state, nil
}

// restoreHash is the inverse of saveHash.
func restoreHash(state []byte) (hash.Hash, error) {
	sum := sha256.New()
	unmarshaler, ok := sum.(encoding.BinaryUnmarshaler)
	if !ok {
		return nil, errors.New("this build's SHA-256 cannot go on from a state")
	}
	if err := unmarshaler.UnmarshalBinary(state); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	return sum, nil
}
