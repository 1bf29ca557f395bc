package workercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/fleet/vmshare"
	"github.com/spotworker/spotworker/internal/handlers"
	"github.com/spotworker/spotworker/internal/host/gpu"
	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/program/tokenproxy"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/job"
)

// kinds returns the handlers that the flags describe and the given ones, which replace
// built-in ones of the same name. closeKinds frees their resources.
func (f *flags) kinds(given job.Kinds, account *azure.Account, shared *vmshare.Dir, t *telemetry,
	log *slog.Logger) (all job.Kinds, gpus *program.GPUs, closeKinds func(), err error) {
	all = f.builtin(account, log)
	maps.Copy(all, given)
	commands, gpus, closeKinds, err := f.commands(all, account, shared, t, log)
	if err != nil {
		return nil, nil, nil, err
	}
	maps.Copy(all, commands)
	if len(all) == 0 {
		return nil, nil, nil, &cli.ConfigError{Err: errors.New("there is no kind of job to do: name the containers of digest jobs with " +
			"--data-container, or commands with --kinds-file; --commands takes commands from messages")}
	}
	return all, gpus, closeKinds, nil
}

// builtin returns the built-in kind, if its containers are configured.
func (f *flags) builtin(account *azure.Account, log *slog.Logger) job.Kinds {
	kinds := job.Kinds{}
	if len(f.DataContainer) > 0 {
		kinds["digest"] = handlers.NewDigest(account.Container, f.DataContainer, log)
	}
	return kinds
}

// runsPrograms reports whether jobs are programs.
func (f *flags) runsPrograms() bool { return f.KindsFile != "" || f.Commands }

// programs returns the kinds of the kinds file, and with --commands the kind of commands. None
// may be among the others, or there twice: one name would mean two things.
func (f *flags) programs(others job.Kinds) (kinds []program.Kind, err error) {
	if f.KindsFile != "" {
		if kinds, err = program.ReadKinds(f.KindsFile); err != nil {
			return nil, refused(err)
		}
	}
	if f.Commands {
		if f.service && f.programsShareUser() {
			return nil, &cli.ConfigError{Err: errors.New("--commands as a service takes --program-users, as the VM package sets: without users " +
				"of their own, commands of messages could read this worker's memory and ask for the VM's tokens")}
		}
		if slices.ContainsFunc(kinds, func(k program.Kind) bool { return k.Name == command.Kind }) {
			return nil, &cli.ConfigError{Err: fmt.Errorf("%s: kind %s is what --commands adds: give it another name, or leave out --commands",
				f.KindsFile, command.Kind)}
		}
		kinds = append(kinds, program.MessageKind(command.Kind))
	}
	for i := range kinds {
		if others[kinds[i].Name] != nil {
			return nil, &cli.ConfigError{Err: fmt.Errorf("%s: kind %s is built into this worker and cannot be replaced; give the command "+
				"another name", cmp.Or(f.KindsFile, "--commands"), kinds[i].Name)}
		}
	}
	return kinds, nil
}

// commands returns the handlers of programs, and the GPUs that their jobs share; nil if none takes any.
func (f *flags) commands(others job.Kinds, account *azure.Account, shared *vmshare.Dir, t *telemetry,
	log *slog.Logger) (all job.Kinds, gpus *program.GPUs, closeKinds func(), err error) {
	all = job.Kinds{}
	kinds, err := f.programs(others)
	if err != nil || len(kinds) == 0 {
		return all, nil, func() {}, err
	}
	tokens, closeTokens, err := tokensFor(kinds, account, log)
	if err != nil {
		return nil, nil, nil, refused(fmt.Errorf("%s: %w", f.KindsFile, err))
	}
	users, err := f.programUsers(shared, log)
	if err != nil {
		closeTokens()
		return nil, nil, nil, refused(fmt.Errorf("--program-users: %w", err))
	}
	stopChecks, err := f.checkExposure(users, t.exposed, log)
	if err != nil {
		closeTokens()
		return nil, nil, nil, refused(fmt.Errorf("--program-users: %w", err))
	}
	closeBoth := func() { stopChecks(); closeTokens() }
	groups := f.controlGroups(kinds, log)
	limitProcesses(kinds, tree.DivideTasks(f.slots()), f.slots(), groups.LimitsTasks() || users != nil, log)
	folders, err := scratch.Open(f.Scratch, users, log)
	if err != nil {
		closeBoth()
		return nil, nil, nil, refused(fmt.Errorf("--scratch: the folder for jobs cannot be made: %w", err))
	}
	if err := program.CheckSnapshots(context.Background(), kinds, folders); err != nil {
		closeBoth()
		_ = folders.Close()
		return nil, nil, nil, refused(fmt.Errorf("%s: %w", f.KindsFile, err))
	}
	var pool *gpu.Pool
	if program.TakeGPUs(kinds) {
		pool = openGPUs(kinds, shared, groups, log)
		gpus = program.ShareGPUs(kinds, pool)
	}
	for i := range kinds {
		for _, path := range kinds[i].Absent() {
			log.Warn("the command of a kind names a path that does not exist; if its program needs it, jobs fail until it is there",
				"kind", kinds[i].Name, "file", path)
		}
		all[kinds[i].Name] = program.NewHandler(kinds[i], folders, groups, tokens, &t.kills, log)
	}
	return all, gpus, func() {
		pool.Close()
		closeBoth()
		if err := folders.Close(); err != nil {
			log.Warn("scratch folder not removed; the next worker here does that", "error", err)
		}
	}, nil
}

// openGPUs looks for the machine's GPUs, and warns of kinds that need more.
func openGPUs(kinds []program.Kind, shared *vmshare.Dir, groups *tree.Groups, log *slog.Logger) *gpu.Pool {
	c := gpu.Config{List: kinds[0].ListedGPUs, Log: log}
	if c.NotHidden = groups.HidesGPUs(); slices.ContainsFunc(c.List, gpu.IsPart) {
		c.NotHidden = errors.New("the kinds file lists parts of GPUs (MIG)")
	}
	c.Hide = c.NotHidden == nil && (c.List == nil || len(c.List) > 0)
	if shared != nil {
		c.Lock = shared.Lock
	}
	pool := gpu.Open(c)
	for i := range kinds {
		if has := pool.Count(); kinds[i].GPUs > has {
			log.Warn("the jobs of a kind take more GPUs than this machine has: they wait for another one, or for a driver. With a unit "+
				"its drop-in must allow devices (PrivateDevices=no)",
				"kind", kinds[i].Name, "error", fmt.Errorf("its jobs take %d GPUs, and jobs can have %d here", kinds[i].GPUs, has))
		}
	}
	return pool
}

// passing is an error whose cause may be gone at the next start.
type passing struct{ error }

func (e *passing) Unwrap() error { return e.error }

// refused returns the error of a check at the start. Only one that no later start can pass is a
// [cli.ConfigError], after which the service manager leaves the worker stopped.
func refused(err error) error {
	_, mayPass := errors.AsType[*passing](err)
	_, inUse := errors.AsType[*vmshare.InUseError](err) // by a worker that is about to end
	_, full := errors.AsType[*vmshare.FullError](err)
	if mayPass || inUse || full || program.MayPass(err) || errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("not ready, try again: %w", err)
	}
	return &cli.ConfigError{Err: err}
}

// tokensFor returns the token proxy for programs, nil if no kind asks for tokens.
func tokensFor(kinds []program.Kind, account *azure.Account, log *slog.Logger) (tokens program.Granter, closeTokens func(), err error) {
	if !slices.ContainsFunc(kinds, func(k program.Kind) bool { return len(k.Tokens) > 0 }) {
		return nil, func() {}, nil
	}
	if !account.HasIdentity() {
		return nil, nil, errors.New("a kind asks for tokens, and this worker has no identity to get them with: set AZURE_CLIENT_ID, or sign in")
	}
	proxy, err := tokenproxy.Listen(account.Token, log)
	if err != nil {
		return nil, nil, &passing{err}
	}
	return proxy, proxy.Close, nil
}

// controlGroups opens the control groups of programs, nil without any: jobs are done also
// where the machine has none.
func (f *flags) controlGroups(kinds []program.Kind, log *slog.Logger) *tree.Groups {
	var groups *tree.Groups
	if f.ControlGroups {
		var err error
		if groups, err = tree.OpenGroups(); err != nil {
			log.Warn("programs have no control groups: they end with their jobs in other ways, their memory counts for each process, "+
				"and cpus is not enforced", "error", err)
		}
	}
	for i := range kinds {
		k := &kinds[i]
		if k.Memory > 0 && !groups.LimitsMemory() || k.CPUs > 0 && !groups.LimitsCPUs() {
			log.Warn("memory of a kind counts for each process alone on this machine, and cpus is not enforced: "+
				"that takes --control-groups and a unit with Delegate=",
				"kind", k.Name, "control_groups", f.ControlGroups)
		}
	}
	return groups
}

// programsShareUser reports whether commands run as the worker's user, as without a valid
// range of users.
func (f *flags) programsShareUser() bool {
	ids, err := sandbox.ParseRange(f.ProgramUsers)
	return err != nil || ids.IsZero()
}

// fewProcesses is a share of processes and threads that runtimes with a thread for each
// processor may exceed.
const fewProcesses = 64

// limitProcesses bounds the processes and threads of each job, so that a job that starts
// processes without end takes none from its neighbours and from the worker. enforced is
// whether the machine can do that for each job.
func limitProcesses(kinds []program.Kind, tasks tree.Tasks, slots int, enforced bool, log *slog.Logger) {
	for i := range kinds {
		k := &kinds[i]
		asked, atOnce := k.Processes, min(cmp.Or(k.Limits.Concurrency, slots), slots)
		if tasks.Job > 0 {
			k.Processes = min(cmp.Or(asked, tasks.Job), tasks.Jobs)
		}
		switch {
		case !enforced && asked > 0:
			log.Warn("processes of a kind is not enforced on this machine: that takes --control-groups and a unit with "+
				"Delegate=, or --program-users", "kind", k.Name)
		case !enforced || tasks.Job == 0:
		case asked == 0 && k.Processes < fewProcesses:
			log.Warn("jobs may have few processes and threads here: raise TasksMax= of the unit, set processes of the kind, or lower --concurrency",
				"kind", k.Name, "processes", k.Processes, "tasks", tasks.Jobs)
		case asked*atOnce > tasks.Jobs:
			log.Warn("processes of a kind is more than its jobs may have together: one can take those of others. Raise TasksMax= of the unit, or "+
				"lower concurrency",
				"kind", k.Name, "processes", asked, "tasks", tasks.Jobs)
		}
	}
}

// programUsers returns the users that commands run as, nil for the worker's own.
func (f *flags) programUsers(shared *vmshare.Dir, log *slog.Logger) (*sandbox.Users, error) {
	ids, err := sandbox.ParseRange(f.ProgramUsers)
	if err != nil {
		return nil, err
	}
	if ids.IsZero() {
		log.Warn("commands run as this worker's user: a job can read other jobs' files and reach the metadata service. Set --program-users to "+
			"give each a user of its own",
			"user", os.Getuid())
		return nil, nil //nolint:nilnil // see above
	}
	c := sandbox.Config{Range: ids, Slots: f.slots()}
	if shared != nil {
		c.Place, c.Places = shared.Place(), vmshare.MaxWorkers
	}
	return sandbox.Open(c)
}

// metadataAt is the address of the metadata service; false if there is none, or it has no address.
func (f *flags) metadataAt() (at netip.AddrPort, ok bool) {
	u, err := url.Parse(f.MetadataEndpoint)
	if err != nil || f.MetadataEndpoint == "none" {
		return at, false // a wrong one is refused where the client is made
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return at, false // a name; the service has an address
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	return netip.AddrPortFrom(ip, uint16(port)), err == nil
}

// checkExposure refuses users who reach the metadata service, and has it checked again until stop
// is called.
func (f *flags) checkExposure(users *sandbox.Users, told func(at string), log *slog.Logger) (stop func(), err error) {
	at, ok := f.metadataAt()
	if users == nil || !ok {
		return func() {}, nil
	}
	e := &exposure{users: users, ids: f.ProgramUsers, at: exposedAt(at), told: told, log: log}
	if err := e.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { e.watch(ctx) })
	return func() { cancel(); watching.Wait() }, nil
}
