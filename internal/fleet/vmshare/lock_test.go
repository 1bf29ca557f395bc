package vmshare

import "testing"

// TestLock: one worker of the VM has a lock at a time.
func TestLock(t *testing.T) {
	path := t.TempDir()
	a, b := open(t, path, "a"), open(t, path, "b")
	release, ok := a.Lock("gpu-0")
	if !ok {
		t.Fatal("a free lock is not given")
	}
	if _, ok := b.Lock("gpu-0"); ok {
		t.Error("two workers have the lock")
	}
	release()
	if release, ok = b.Lock("gpu-0"); !ok {
		t.Fatal("the lock is kept after its release")
	}
	release()
}
