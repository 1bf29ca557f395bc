package arm

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestEvicts calls the action on each kind of VM. The Preempt is at that VM's
// metadata service after the delay, and not before.
func TestEvicts(t *testing.T) {
	for vm, path := range map[string]string{
		"spot_3": uniform, "flex_1234abcd": flexible, "alone": single,
	} {
		t.Run(vm, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, func(o *Options) { o.EvictionDelay = 30 * time.Second })
				b.preempts(vm) // switches its scheduled events on, which takes time
				answer := b.call(http.MethodPost, path+"/simulateEviction"+version)
				if answer["status"] != http.StatusNoContent || len(answer) != 1 {
					t.Errorf("simulateEviction = %v, want 204 without a body", answer)
				}
				time.Sleep(30*time.Second - time.Nanosecond)
				synctest.Wait()
				if got := b.preempts(vm); got != 0 {
					t.Errorf("%d Preempts before the delay is over, want none", got)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if got := b.preempts(vm); got != 1 {
					t.Errorf("%d Preempts after the delay, want 1", got)
				}
			})
		})
	}
}

func TestEvictsWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t) // none
		start := time.Now()
		b.call(http.MethodPost, single+"/simulateEviction"+version)
		synctest.Wait()
		if waited := time.Since(start); waited != 0 {
			t.Errorf("waited %s, want no delay", waited)
		}
		if got := b.preempts("alone"); got != 1 {
			t.Errorf("%d Preempts, want 1", got)
		}
	})
}

// TestOnePreempt: calls while an eviction is due are answered and change
// nothing; a later one is one of its own.
func TestOnePreempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var evicted []string
		b := setup(t, func(o *Options) {
			o.EvictionDelay, o.Evict = time.Second, func(vm string) { evicted = append(evicted, vm) }
		})
		for _, path := range []string{uniform, strings.ToUpper(uniform), uniform} {
			if got := b.call(http.MethodPost, path+"/simulateEviction"+version)["status"]; got != http.StatusNoContent {
				t.Errorf("status for %s = %v, want 204", path, got)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := strings.Join(evicted, " "); got != "spot_3" {
			t.Errorf("evicted after three calls: %q, want spot_3 once", got)
		}
		b.call(http.MethodPost, uniform+"/simulateEviction"+version)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := strings.Join(evicted, " "); got != "spot_3 spot_3" {
			t.Errorf("evicted after one more: %q, want spot_3 twice", got)
		}
	})
}

// TestClose: it drops the Preempts that are due, and accepts no more calls.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(o *Options) {
			o.EvictionDelay, o.Evict = time.Second, func(vm string) { t.Errorf("%s is evicted after Close", vm) }
		})
		b.call(http.MethodPost, single+"/simulateEviction"+version)
		b.Close()
		b.options.EvictionDelay = -1
		for range 50 { // with no delay, only some would be dropped by chance
			b.call(http.MethodPost, uniform+"/simulateEviction"+version)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// TestRefuses sends what ARM refuses. No VM is evicted.
func TestRefuses(t *testing.T) {
	const evict = "/simulateEviction"
	for _, test := range []struct {
		name, method, path string
		status             int
		code, says         string
	}{
		{"regular VM", "POST", regular + evict + version, 409, "OperationNotAllowed", "producer has priority Regular"},
		{"no version", "POST", uniform + evict, 400, "MissingApiVersionParameter", "api-version"},
		{"version before the action", "POST", uniform + evict + "?api-version=2019-07-01", 400, "InvalidApiVersionParameter", "2019-12-01"},
		{"version that is none", "POST", uniform + evict + "?api-version=latest", 400, "InvalidApiVersionParameter", `"latest"`},
		{"another subscription", "POST", strings.Replace(uniform, "00000000", "10000000", 1) + evict + version, 404, "SubscriptionNotFound",
			"10000000-"},
		{"another group", "POST", strings.Replace(uniform, "/rg/", "/other/", 1) + evict + version, 404, "ResourceGroupNotFound",
			"resource group other"},
		{"another instance", "POST", uniform + "3" + evict + version, 404, "ResourceNotFound", "virtualMachines/33 in resource group rg"},
		{"Uniform instance as a VM", "POST", compute + "/virtualMachines/spot_3" + evict + version, 404, "ResourceNotFound",
			"virtualMachines/spot_3"},
		{"Flexible VM as an instance", "POST", compute + "/virtualMachineScaleSets/flex/virtualMachines/1234abcd" + evict + version, 404,
			"ResourceNotFound", "1234abcd"},
		{"another action", "POST", single + "/start" + version, 501, "NotImplemented", "POST " + single + "/start"},
		{"another method", "GET", single + evict + version, 501, "NotImplemented", "not GET"},
		{"the VM itself", "DELETE", single + version, 501, "NotImplemented", "DELETE"},
		{"list of another group", "GET", strings.Replace(compute, "/rg/", "/other/", 1) + "/virtualMachines" + version, 404,
			"ResourceGroupNotFound", "other"},
		{"list of another subscription", "GET", strings.Replace(compute, "00000000", "10000000", 1) + "/virtualMachines" + version, 404,
			"SubscriptionNotFound", "10000000-"},
		{"list without a version", "GET", compute + "/virtualMachines", 400, "MissingApiVersionParameter", "api-version"},
		{"list of a version without priorities", "GET", compute + "/virtualMachines?api-version=2018-10-01", 400, "InvalidApiVersionParameter",
			"2019-03-01"},
		{"a VM made", "PUT", single + version, 501, "NotImplemented", "PUT"},
		{"an instance of a Uniform set", "GET", uniform + version, 501, "NotImplemented", "GET"},
		{"a VM that is not there", "GET", single + "2" + version, 404, "ResourceNotFound", "alone2"},
		{"something below the action", "POST", single + evict + "/now" + version, 501, "NotImplemented", "/now"},
		{"another path", "GET", "/providers" + version, 404, "NotFound", "/providers"},
		{"a write to subscriptions", "PUT", "/subscriptions" + version, 404, "NotFound", "/subscriptions"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := setup(t, func(o *Options) { o.Evict = func(vm string) { t.Errorf("%s is evicted", vm) } })
			answer := b.call(test.method, test.path)
			wantError(t, answer, test.status, test.code, test.says)
		})
	}
}

func wantError(t *testing.T, answer map[string]any, status int, code, says string) {
	t.Helper()
	failure, _ := answer["error"].(map[string]any)
	message, _ := failure["message"].(string)
	if answer["status"] != status || failure["code"] != code || !strings.Contains(message, says) {
		t.Errorf("answer = %v, want %d, code %s and a message with %q", answer, status, code, says)
	}
}
