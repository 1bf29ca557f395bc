// Package pool keeps goroutines for functions that need deep stacks.
package pool

import "sync"

// maxKept is how many goroutines a pool keeps for later functions at most.
const maxKept = 64

// Pool runs functions in goroutines, and keeps goroutines for the functions that come
// later: a delivery needs a deep stack, and growing the stack of a new goroutine costs
// several microseconds for each job. Go may be called by several goroutines; all calls
// have returned before Wait is called.
type Pool struct {
	next    chan func() // is received from by the goroutines that are kept
	running sync.WaitGroup

	mu   sync.Mutex
	kept int
}

// New returns a pool without goroutines.
func New() *Pool { return &Pool{next: make(chan func())} }

// Go runs a function in a goroutine.
func (p *Pool) Go(f func()) {
	select {
	case p.next <- f:
	default:
		p.running.Go(func() { p.run(f) })
	}
}

// run runs a function and the functions after it, until the pool keeps enough other
// goroutines or is closed.
func (p *Pool) run(f func()) {
	for ok := true; ok; {
		f()
		if !p.keep(1) {
			return
		}
		f, ok = <-p.next
		p.keep(-1)
	}
}

// keep counts goroutines that are kept, and reports whether they are not too many.
func (p *Pool) keep(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept+n > maxKept {
		return false
	}
	p.kept += n
	return true
}

// Wait waits until all functions have returned. The pool runs no more after that.
func (p *Pool) Wait() {
	close(p.next)
	p.running.Wait()
}
