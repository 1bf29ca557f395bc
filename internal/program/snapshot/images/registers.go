package images

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Registers are the registers of a thread, by their numbers in criu's images (user_x86_regs_entry of
// core-x86.proto).
type Registers map[protowire.Number]uint64

// Numbers of registers.
const (
	R10    protowire.Number = 8
	R9     protowire.Number = 9
	R8     protowire.Number = 10
	AX     protowire.Number = 11
	DX     protowire.Number = 13
	SI     protowire.Number = 14
	DI     protowire.Number = 15
	OrigAX protowire.Number = 16
	IP     protowire.Number = 17
	CS     protowire.Number = 18
	SP     protowire.Number = 20
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

// IsInterrupted reports whether a thread has just left a system call with EINTR that it can make
// again. A call of close or connect has had its effect, and one that the kernel has made again
// before has lost its number.
func (r Registers) IsInterrupted() bool {
	call := r[OrigAX]
	return int64(r[AX]) == interrupted && int64(call) >= 0 && r[CS] == userCode &&
		call != callClose && call != callConnect && call != callRestart
}

// Line describes the system call as /proc/PID/syscall does: its number, its arguments, and where it was
// made.
func (r Registers) Line() string {
	return fmt.Sprintf("%d 0x%x 0x%x 0x%x 0x%x 0x%x 0x%x 0x%x 0x%x", r[OrigAX], r[DI], r[SI], r[DX], r[R10], r[R8], r[R9], r[SP], r[IP])
}

// Memory reads and changes the memory of a process.
type Memory struct {
	Read, Write func(address uint64, data []byte) error
}

// Waited is how long a thread has been in its system call, at least and at most.
type Waited struct{ Least, Most time.Duration }

// rest returns the rest of a time limit. A wait whose limit may have been over has its whole time
// again, since it may be the next one of a loop: a wait that ends late is better than one that ends
// early.
func (w Waited) rest(limit time.Duration) time.Duration {
	if limit <= w.Most {
		return limit
	}
	return limit - w.Least
}

// Again changes an interrupted thread so that it makes its system call again, for the rest of its
// time.
func (r Registers) Again(w Waited, m Memory) {
	call := r[OrigAX]
	r[AX], r[IP] = call, r[IP]-syscallLength
	switch call {
	case callPoll:
		r[DX] = w.milliseconds(r[DX])
	case callEpollWait, callEpollPwait:
		r[R10] = w.milliseconds(r[R10])
	case callNanosleep:
		r.sleepAgain(DI, SI, w, m)
	case callClockNanosleep:
		if r[SI]&absoluteTime == 0 && r[DI] <= lastWallClock {
			r.sleepAgain(DX, R10, w, m)
		}
	case callFutex:
		if r[SI]&futexCommand == futexWait {
			w.timespec(r[R10], m)
		}
	case callRtSigtimedwait:
		w.timespec(r[DX], m)
	case callEpollPwait2:
		w.timespec(r[R10], m)
	}
}

// sleepAgain lets a sleep continue. The kernel has written the rest of its time to a place that
// the program gave for that. A program that gave none may use the time again, so it must not
// change: poll, which has its time in a register, waits for the rest.
func (r Registers) sleepAgain(limit, rest protowire.Number, w Waited, m Memory) {
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
		r[AX], r[DI], r[SI], r[DX] = callPoll, 0, 0, uint64(left)
	}
}

// roundUp returns a time in milliseconds.
func roundUp(t time.Duration) int64 { return int64((t + time.Millisecond - 1) / time.Millisecond) }

// milliseconds returns the rest of a time limit in milliseconds. A negative one has no end.
func (w Waited) milliseconds(limit uint64) uint64 {
	whole := int32(limit)
	if whole <= 0 {
		return limit
	}
	return uint64(roundUp(w.rest(time.Duration(whole) * time.Millisecond)))
}

// timespec replaces a time limit in memory by its rest. Programs compute such times for each call.
func (w Waited) timespec(address uint64, m Memory) {
	whole, err := readTime(address, m)
	if address == 0 || err != nil {
		return
	}
	left := w.rest(whole)
	var to [timespecLength]byte
	binary.LittleEndian.PutUint64(to[:], uint64(left/time.Second))
	binary.LittleEndian.PutUint64(to[timespecLength/2:], uint64(left%time.Second))
	_ = m.Write(address, to[:]) // otherwise the call waits for its whole time
}

// readTime reads a struct timespec.
func readTime(address uint64, m Memory) (time.Duration, error) {
	var from [timespecLength]byte
	if err := m.Read(address, from[:]); err != nil {
		return 0, err
	}
	seconds, nanoseconds := binary.LittleEndian.Uint64(from[:]), binary.LittleEndian.Uint64(from[timespecLength/2:])
	if seconds > math.MaxInt64/uint64(time.Second)-1 || nanoseconds >= uint64(time.Second) {
		return 0, errors.New("the time is out of range")
	}
	return time.Duration(seconds)*time.Second + time.Duration(nanoseconds), nil
}
