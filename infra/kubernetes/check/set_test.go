package check

import (
	"errors"
	"fmt"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// set holds the objects of one variant.
type set struct {
	image       string // of the worker; empty: that of the kustomization
	accounts    []*corev1.ServiceAccount
	settings    []*corev1.ConfigMap
	deployments []*appsv1.Deployment
	budgets     []*policyv1.PodDisruptionBudget
	scaled      []*kedav1alpha1.ScaledObject
	jobs        []*kedav1alpha1.ScaledJob
	signIns     []*kedav1alpha1.TriggerAuthentication
}

// decode adds an object. A field that its type lacks, or that occurs twice, is an error.
func (s *set) decode(kind, version string, text []byte) error {
	switch version + "/" + kind {
	case "v1/ServiceAccount":
		return strict(text, &s.accounts)
	case "v1/ConfigMap":
		return strict(text, &s.settings)
	case "apps/v1/Deployment":
		return strict(text, &s.deployments)
	case "policy/v1/PodDisruptionBudget":
		return strict(text, &s.budgets)
	case "keda.sh/v1alpha1/ScaledObject":
		return strict(text, &s.scaled)
	case "keda.sh/v1alpha1/ScaledJob":
		return strict(text, &s.jobs)
	case "keda.sh/v1alpha1/TriggerAuthentication":
		return strict(text, &s.signIns)
	}
	return fmt.Errorf("unknown type %s %s", version, kind)
}

// strict decodes as the API server does with strict validation: names of fields are
// compared with case.
func strict[T any](text []byte, to *[]*T) error {
	content, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	object := new(T)
	unknown, err := json.UnmarshalStrict(content, object)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return err
	}
	*to = append(*to, object)
	return nil
}
