package chaos

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/spotworker/spotworker/job"
)

// A streamed state is a header and some parts, each of the size in which the
// worker keeps states, so that from one step to the next two of them change:
// the header and one part. Each part tells when it changed last, and all of a
// state can be told from the step: one put together from two saves is found out.
const (
	partSize = 1 << 20
	parts    = 2
)

// encodeStream returns the state at a step.
func (p payload) encodeStream(at position) io.ReadCloser {
	header, err := json.Marshal(at)
	if err != nil {
		panic(err) // numbers and bytes
	}
	var b bytes.Buffer
	b.Grow((parts + 1) * partSize)
	b.Write(header)
	b.Write(make([]byte, partSize-len(header)))
	for part := range parts {
		_, _ = b.Write(p.part(part, lastChange(part, at.Step))) // of a buffer: never fails
	}
	return io.NopCloser(&b)
}

// lastChange is the last step up to this one in which a part changed.
func lastChange(part, step int) int {
	return step - (step-part+parts)%parts
}

// part is what a part holds since that step.
func (p payload) part(part, since int) []byte {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", p.Seed, part, since))
	content := make([]byte, partSize)
	_, _ = rand.NewChaCha8(seed).Read(content) // never fails
	return content
}

// decodeStream reads a state and checks all of it.
func (p payload) decodeStream(whole []byte) (at position, err error) {
	header, _, _ := bytes.Cut(whole, []byte{0})
	if json.Unmarshal(header, &at) != nil {
		return position{}, job.Permanent(errMixed)
	}
	want, err := io.ReadAll(p.encodeStream(at))
	if err != nil {
		return position{}, err
	}
	if !bytes.Equal(whole, want) {
		return position{}, job.Permanent(errMixed)
	}
	return at, nil
}
