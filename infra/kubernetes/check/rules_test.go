package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	user = 65532

	// payloadMemory bounds the payloads that a worker holds, as internal/worker has it.
	payloadMemory = 1 << 30

	// fastestScaleIn is the part of the pods, in percent, that may go within a minute.
	fastestScaleIn = 50

	// afterDrain is the time for the last heartbeat, metrics and traces, after the drain budget.
	afterDrain = 10 * time.Second

	// longestNotice is the longest notice of a Spot eviction.
	longestNotice = 30 * time.Second
)

// priorities are the keys of labels and taints of Spot nodes, whose value is spot.
var priorities = []string{"kubernetes.azure.com/priority", "kubernetes.azure.com/scalesetpriority"}

// report collects problems.
type report []string

// want adds a problem unless ok, which it returns.
func (r *report) want(ok bool, format string, args ...any) bool {
	if !ok {
		*r = append(*r, fmt.Sprintf(format, args...))
	}
	return ok
}

// check returns the rules that the objects of a variant break.
func (s *set) check() []string {
	var r report
	if !r.want(len(s.settings) == 1 && len(s.accounts) == 1 && len(s.deployments)+len(s.jobs) == 1,
		"want one ConfigMap, one ServiceAccount, and one Deployment or ScaledJob") {
		return r
	}
	r.want(s.accounts[0].Annotations["azure.workload.identity/client-id"] != "", "the service account names no identity")
	for _, d := range s.deployments {
		s.checkPod(&r, d.Spec.Template)
		r.want(d.Spec.Replicas == nil, "the Deployment sets replicas: an apply would undo KEDA's number")
		r.want(matches(d.Spec.Selector, d.Spec.Template.Labels), "the Deployment's selector misses its pods")
		r.want(len(s.budgets) == 1 && matches(s.budgets[0].Spec.Selector, d.Spec.Template.Labels), "the disruption budget misses the pods")
		r.want(d.Spec.MinReadySeconds > 0, "minReadySeconds is 0: a worker that cannot start counts as available")
		r.want(d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue() == 0, "maxSurge is not 0: a new worker finds no free node")
		r.want(some(d.Spec.Strategy.RollingUpdate.MaxUnavailable), "maxUnavailable is 0: an update never begins")
		for _, b := range s.budgets {
			r.want(some(b.Spec.MaxUnavailable), "maxUnavailable of the disruption budget is 0: no node can be drained")
		}
	}
	for _, j := range s.jobs {
		s.checkPod(&r, j.Spec.JobTargetRef.Template)
		s.checkTriggers(&r, j.Spec.Triggers)
		r.want(j.Spec.JobTargetRef.Template.Spec.RestartPolicy == corev1.RestartPolicyNever, "the pods of a job restart")
		args := j.Spec.JobTargetRef.Template.Spec.Containers[0].Args
		r.want(slices.ContainsFunc(args, func(a string) bool { return len(a) > 17 && a[:17] == "--exit-when-idle=" }),
			"a worker of the ScaledJob never ends")
		r.want(j.Spec.JobTargetRef.BackoffLimit != nil && *j.Spec.JobTargetRef.BackoffLimit == 0, "Kubernetes starts workers again beside KEDA")
		r.want(j.Spec.Rollout.Strategy == "gradual", "an update ends running jobs")
		r.want(slices.Contains([]string{"", "default"}, j.Spec.ScalingStrategy.Strategy), "only default subtracts the running workers")
		r.want(j.Spec.JobTargetRef.ActiveDeadlineSeconds == nil, "the ScaledJob ends workers after a time")
	}
	for _, o := range s.scaled {
		r.want(len(s.deployments) == 1 && o.Spec.ScaleTargetRef.Name == s.deployments[0].Name, "the ScaledObject scales no Deployment")
		s.checkTriggers(&r, o.Spec.Triggers)
		checkScaleIn(&r, o)
	}
	r.want(s.settings[0].Data["SPOTWORKER_ACKNOWLEDGE"] == "never", "acknowledging an event starts it for all pods of the node")
	return r
}

// some reports whether a number of pods is there and above 0.
func some(n *intstr.IntOrString) bool { return n != nil && n.String() != "0" && n.String() != "0%" }

// checkScaleIn checks that pods go few at a time: each hands its jobs over.
func checkScaleIn(r *report, o *kedav1alpha1.ScaledObject) {
	a := o.Spec.Advanced
	if !r.want(a != nil && a.HorizontalPodAutoscalerConfig != nil && a.HorizontalPodAutoscalerConfig.Behavior != nil &&
		a.HorizontalPodAutoscalerConfig.Behavior.ScaleDown != nil && len(a.HorizontalPodAutoscalerConfig.Behavior.ScaleDown.Policies) > 0,
		"all pods may go at once") {
		return
	}
	down := a.HorizontalPodAutoscalerConfig.Behavior.ScaleDown
	r.want(down.StabilizationWindowSeconds != nil && *down.StabilizationWindowSeconds >= 60, "scale-in follows a single look")
	for _, p := range down.Policies {
		r.want(p.Type == autoscalingv2.PercentScalingPolicy && p.Value <= fastestScaleIn && p.PeriodSeconds >= 60,
			"%d %s of the pods may go within %d s", p.Value, p.Type, p.PeriodSeconds)
	}
}

// onRegular reports whether the workers are for the on-demand queue.
func (s *set) onRegular() bool { return s.settings[0].Data["SPOTWORKER_TAKE_FROM"] == "on-demand" }

// checkTriggers checks that KEDA counts the messages of the workers' queues, hidden ones too.
func (s *set) checkTriggers(r *report, triggers []kedav1alpha1.ScaleTriggers) {
	settings := s.settings[0].Data
	queues := []string{"", "-first"}
	if s.onRegular() {
		queues = []string{"-ondemand"}
	}
	if !r.want(len(triggers) == len(queues), "%d triggers, want %d", len(triggers), len(queues)) {
		return
	}
	for i, t := range triggers {
		want := map[string]string{
			"accountName": settings["SPOTWORKER_ACCOUNT"], "queueName": settings["SPOTWORKER_QUEUE"] + queues[i],
			"queueLength": settings["SPOTWORKER_CONCURRENCY"], "queueLengthStrategy": "all",
		}
		r.want(t.Type == "azure-queue" && maps.Equal(t.Metadata, want), "trigger %s %v, want azure-queue %v", t.Type, t.Metadata, want)
		r.want(len(s.signIns) == 1 && t.AuthenticationRef != nil && t.AuthenticationRef.Name == s.signIns[0].Name,
			"the trigger has no sign-in")
	}
	for _, a := range s.signIns {
		r.want(a.Spec.PodIdentity != nil && a.Spec.PodIdentity.Provider == "azure-workload", "KEDA does not sign in with workload identity")
	}
}

// checkPod checks the pod of a worker.
func (s *set) checkPod(r *report, pod corev1.PodTemplateSpec) {
	spec := pod.Spec
	if !r.want(len(spec.Containers) == 1, "%d containers, want 1", len(spec.Containers)) {
		return
	}
	r.want(pod.Labels["azure.workload.identity/use"] == "true", "the pod gets no workload identity")
	r.want(spec.ServiceAccountName == s.accounts[0].Name, "the pod's service account does not exist")
	r.want(spec.EnableServiceLinks != nil && !*spec.EnableServiceLinks, "variables of services look like settings")
	s.checkTimes(r, spec)
	s.checkNodes(r, pod)
	s.checkSecurity(r, spec)
	s.checkContainer(r, spec)
}

// checkTimes checks that a drain fits into the grace period, and that into a notice.
func (s *set) checkTimes(r *report, spec corev1.PodSpec) {
	drain, err := time.ParseDuration(s.settings[0].Data["SPOTWORKER_DRAIN_BUDGET"])
	if !r.want(err == nil, "drain budget: %v", err) || !r.want(spec.TerminationGracePeriodSeconds != nil, "no grace period") {
		return
	}
	grace := time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second
	r.want(grace >= drain+afterDrain, "grace period of %s, want the drain budget of %s and %s", grace, drain, afterDrain)
	r.want(grace <= longestNotice, "grace period of %s is longer than an eviction's notice", grace)
}

// admits reports whether a pod may run on a node with that label, or with none of priorities.
func admits(spec corev1.PodSpec, label string) bool {
	if label != "" && !slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool {
		return t == corev1.Toleration{Key: label, Operator: corev1.TolerationOpEqual, Value: "spot", Effect: corev1.TaintEffectNoSchedule}
	}) {
		return false
	}
	a := spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			is := e.Key == label && slices.Equal(e.Values, []string{"spot"})
			return slices.Contains(priorities, e.Key) && is != (e.Operator == corev1.NodeSelectorOpIn)
		})
	})
}

// checkNodes checks that pods run on Spot nodes, by either label, or on all others, and share a
// node only with a folder.
func (s *set) checkNodes(r *report, pod corev1.PodTemplateSpec) {
	spec, alone := pod.Spec, false
	for _, label := range priorities {
		r.want(admits(spec, label) != s.onRegular(), "the pod does not tolerate Spot nodes with %s, or must not run there", label)
	}
	r.want(admits(spec, "") == s.onRegular(), "the pod may run on nodes of regular priority, or must")
	if a := spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		for _, term := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			alone = term.TopologyKey == corev1.LabelHostname && matches(term.LabelSelector, pod.Labels)
		}
	}
	shared := environment(spec.Containers[0])["SPOTWORKER_RUNTIME_DIR"].Value
	r.want(alone != (shared != ""), "pods may share a node if they share a folder, and only then")
	if shared == "" {
		r.want(len(spec.InitContainers) == 0, "init containers without a shared folder")
		return
	}
	volume := volumeAt(spec, spec.Containers[0], shared)
	r.want(volume != nil && volume.HostPath != nil, "SPOTWORKER_RUNTIME_DIR %s is no folder of the node", shared)
	r.want(len(spec.InitContainers) == 1 && volumeAt(spec, spec.InitContainers[0], shared) != nil &&
		slices.Contains(spec.InitContainers[0].Command, fmt.Sprintf("chown %d:%d %s && chmod 0700 %s", user, user, shared, shared)),
		"nothing gives the shared folder to the workers' user")
}

// checkSecurity checks that the worker has no rights.
func (s *set) checkSecurity(r *report, spec corev1.PodSpec) {
	p, c := spec.SecurityContext, spec.Containers[0].SecurityContext
	if !r.want(p != nil && c != nil && c.Capabilities != nil, "no security context") {
		return
	}
	yes := func(b *bool) bool { return b != nil && *b }
	is := func(n *int64) bool { return n != nil && *n == user }
	r.want(yes(p.RunAsNonRoot) && is(p.RunAsUser) && is(p.RunAsGroup) && c.RunAsUser == nil, "the worker does not run as user %d", user)
	r.want(p.SeccompProfile != nil && p.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault, "no seccomp profile")
	r.want(yes(c.ReadOnlyRootFilesystem), "the root file system is not read-only")
	r.want(c.AllowPrivilegeEscalation != nil && !*c.AllowPrivilegeEscalation, "privileges may be gained")
	r.want(slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(c.Capabilities.Add) == 0, "the worker has capabilities")
	r.want(spec.AutomountServiceAccountToken != nil && !*spec.AutomountServiceAccountToken, "the worker can use the cluster's API")
}

// checkContainer checks settings, probe and volumes.
func (s *set) checkContainer(r *report, spec corev1.PodSpec) {
	c, env := spec.Containers[0], environment(spec.Containers[0])
	from := env["SPOTWORKER_INSTANCE"].ValueFrom
	r.want(from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.uid", "the instance is not the pod's UID")
	image := cmp.Or(s.image, "registry.example/spotworker:v0.1.0")
	r.want(c.Image == image, "image is %s, want %s", c.Image, image)
	r.want(len(c.EnvFrom) == 1 && c.EnvFrom[0].ConfigMapRef != nil && c.EnvFrom[0].ConfigMapRef.Name == s.settings[0].Name,
		"the worker does not get the settings")
	p := c.LivenessProbe
	if r.want(p != nil && p.HTTPGet != nil && p.HTTPGet.Path == "/livez", "no probe of /livez") {
		r.want(len(c.Ports) == 1 && p.HTTPGet.Port.String() == c.Ports[0].Name &&
			env["SPOTWORKER_LISTEN"].Value == "0.0.0.0:"+strconv.Itoa(int(c.Ports[0].ContainerPort)), "the probe misses the worker's port")
	}
	_, limited := c.Resources.Limits[corev1.ResourceCPU]
	r.want(limited, "no limit of processors: AKS Automatic would set the request as one")
	memory := c.Resources.Limits[corev1.ResourceMemory]
	r.want(!memory.IsZero() && 2*payloadMemory <= memory.Value(),
		"payloads may take more than half of the memory limit of %s", &memory)
	scratch := volumeAt(spec, c, "/tmp")
	if r.want(scratch != nil && limit(scratch) != nil, "no bounded scratch folder") {
		r.want(2*s.quantity(r, "SPOTWORKER_INPUT_CACHE", 1<<30) <= limit(scratch).Value(),
			"the cache may take more than half of the scratch folder")
		disk := c.Resources.Limits[corev1.ResourceEphemeralStorage]
		r.want(limit(scratch).Cmp(disk) < 0, "the scratch folder of %s may exceed the container's disk of %s", limit(scratch), &disk)
	}
}

// quantity returns a setting in bytes.
func (s *set) quantity(r *report, name string, unit int64) int64 {
	n, err := strconv.ParseInt(s.settings[0].Data[name], 10, 32)
	r.want(err == nil && n > 0, "%s is %q, want a number above 0", name, s.settings[0].Data[name])
	return n * unit
}

// limit returns the size of a scratch volume, or nil.
func limit(v *corev1.Volume) *resource.Quantity {
	if v.EmptyDir == nil {
		return nil
	}
	return v.EmptyDir.SizeLimit
}

// environment returns the variables of a container by name.
func environment(c corev1.Container) map[string]corev1.EnvVar {
	all := map[string]corev1.EnvVar{}
	for _, e := range c.Env {
		all[e.Name] = e
	}
	return all
}

// volumeAt returns the volume that a container mounts at a path, or nil.
func volumeAt(spec corev1.PodSpec, c corev1.Container, path string) *corev1.Volume {
	for _, m := range c.VolumeMounts {
		for i := range spec.Volumes {
			if m.MountPath == path && m.Name == spec.Volumes[i].Name && !m.ReadOnly {
				return &spec.Volumes[i]
			}
		}
	}
	return nil
}

// matches reports whether a selector of labels alone selects labels.
func matches(selector *metav1.LabelSelector, labels map[string]string) bool {
	if selector == nil || len(selector.MatchLabels) == 0 || len(selector.MatchExpressions) > 0 {
		return false
	}
	for name, value := range selector.MatchLabels {
		if labels[name] != value {
			return false
		}
	}
	return true
}
