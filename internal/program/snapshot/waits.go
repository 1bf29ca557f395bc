package snapshot

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// registers of a thread, by their numbers in criu's images (user_x86_regs_entry of core-x86.proto).
type registers map[protowire.Number]uint64

const (
	regR10    protowire.Number = 8
	regR9     protowire.Number = 9
	regR8     protowire.Number = 10
	regAX     protowire.Number = 11
	regDX     protowire.Number = 13
	regSI     protowire.Number = 14
	regDI     protowire.Number = 15
	regOrigAX protowire.Number = 16
	regIP     protowire.Number = 17
	regCS     protowire.Number = 18
	regSP     protowire.Number = 20
)

// Numbers of system calls on x86-64.
const (
	callClose          = 3
	callPoll           = 7
	callNanosleep      = 35
	callConnect        = 42
	callRtSigtimedwait = 128
	callFutex          = 202
	callRestart        = 219
	callClockNanosleep = 230
	callEpollWait      = 232
	callEpollPwait     = 281
	callEpollPwait2    = 441
)

const (
	interrupted    = -4 // EINTR, as a result
	syscallLength  = 2  // of the instruction, in bytes
	userCode       = 0x33
	absoluteTime   = 1 // TIMER_ABSTIME
	futexCommand   = 0x7f
	futexWait      = 0 // the only command of futex with a relative time
	lastWallClock  = 1 // CLOCK_MONOTONIC, after CLOCK_REALTIME
	timespecLength = 16
)

// isInterrupted reports whether a thread has just left a system call with EINTR that it can make
// again. A call of close or connect has had its effect, and one that the kernel has made again
// before has lost its number.
func (r registers) isInterrupted() bool {
	call := r[regOrigAX]
	return int64(r[regAX]) == interrupted && int64(call) >= 0 && r[regCS] == userCode &&
		call != callClose && call != callConnect && call != callRestart
}

// arguments returns the arguments of the system call.
func (r registers) arguments() [6]uint64 {
	return [6]uint64{r[regDI], r[regSI], r[regDX], r[regR10], r[regR8], r[regR9]}
}

// memory reads and changes the memory of a process.
type memory struct {
	read, write func(address uint64, data []byte) error
}

// waited is how long a thread has been in its system call, at least and at most.
type waited struct{ least, most time.Duration }

// rest returns the rest of a time limit. A wait whose limit may have been over has its whole time
// again, since it may be the next one of a loop: a wait that ends late is better than one that ends
// early.
func (w waited) rest(limit time.Duration) time.Duration {
	if limit <= w.most {
		return limit
	}
	return limit - w.least
}

// again changes an interrupted thread so that it makes its system call again, for the rest of its
// time.
func (r registers) again(w waited, m memory) {
	call := r[regOrigAX]
	r[regAX], r[regIP] = call, r[regIP]-syscallLength
	switch call {
	case callPoll:
		r[regDX] = w.milliseconds(r[regDX])
	case callEpollWait, callEpollPwait:
		r[regR10] = w.milliseconds(r[regR10])
	case callNanosleep:
		r.sleepAgain(regDI, regSI, w, m)
	case callClockNanosleep:
		if r[regSI]&absoluteTime == 0 && r[regDI] <= lastWallClock {
			r.sleepAgain(regDX, regR10, w, m)
		}
	case callFutex:
		if r[regSI]&futexCommand == futexWait {
			w.timespec(r[regR10], m)
		}
	case callRtSigtimedwait:
		w.timespec(r[regDX], m)
	case callEpollPwait2:
		w.timespec(r[regR10], m)
	}
}

// sleepAgain lets a sleep continue. The kernel has written the rest of its time to a place that
// the program gave for that. A program that gave none may use the time again, so it must not
// change: poll, which has its time in a register, waits for the rest.
func (r registers) sleepAgain(limit, rest protowire.Number, w waited, m memory) {
	if r[rest] != 0 {
		r[limit] = r[rest]
		return
	}
	whole, err := readTime(r[limit], m)
	if err != nil {
		return
	}
	left := roundUp(w.rest(whole))
	if left <= math.MaxInt32 {
		r[regAX], r[regDI], r[regSI], r[regDX] = callPoll, 0, 0, uint64(left)
	}
}

// roundUp returns a time in milliseconds.
func roundUp(t time.Duration) int64 { return int64((t + time.Millisecond - 1) / time.Millisecond) }

// milliseconds returns the rest of a time limit in milliseconds. A negative one has no end.
func (w waited) milliseconds(limit uint64) uint64 {
	whole := int32(limit) //nolint:gosec // an int in a register
	if whole <= 0 {
		return limit
	}
	return uint64(roundUp(w.rest(time.Duration(whole) * time.Millisecond))) //nolint:gosec // not negative
}

// timespec replaces a time limit in memory by its rest. Programs compute such times for each call.
func (w waited) timespec(address uint64, m memory) {
	whole, err := readTime(address, m)
	if address == 0 || err != nil {
		return
	}
	left := w.rest(whole)
	var to [timespecLength]byte
	binary.LittleEndian.PutUint64(to[:], uint64(left/time.Second))
	binary.LittleEndian.PutUint64(to[timespecLength/2:], uint64(left%time.Second))
	_ = m.write(address, to[:]) // otherwise the call waits for its whole time
}

// readTime reads a struct timespec.
func readTime(address uint64, m memory) (time.Duration, error) {
	var from [timespecLength]byte
	if err := m.read(address, from[:]); err != nil {
		return 0, err
	}
	seconds, nanoseconds := binary.LittleEndian.Uint64(from[:]), binary.LittleEndian.Uint64(from[timespecLength/2:])
	if seconds > math.MaxInt64/uint64(time.Second)-1 || nanoseconds >= uint64(time.Second) {
		return 0, errors.New("the time is out of range")
	}
	return time.Duration(seconds)*time.Second + time.Duration(nanoseconds), nil //nolint:gosec // in range
}
