package kubernetes

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// root is the project's folder.
const root = "../.."

// objects are what is deployed, by kind and name.
type objects map[string]metav1.Object

// podMonitor is what the project says of the resource of the Prometheus operator.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel                string               `json:"jobLabel"`
		ScrapeClassicHistograms bool                 `json:"scrapeClassicHistograms"`
		Selector                metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints     []struct {
			Port string `json:"port"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// prometheusRule is another resource of the Prometheus operator; promtool tests its rules.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              map[string]any `json:"spec"`
}

// newObject has an empty object for each kind that is deployed.
var newObject = map[metav1.TypeMeta]func() metav1.Object{
	{APIVersion: "apps/v1", Kind: "Deployment"}:                      func() metav1.Object { return new(appsv1.Deployment) },
	{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"}:  func() metav1.Object { return new(autoscalingv2.HorizontalPodAutoscaler) },
	{APIVersion: "monitoring.coreos.com/v1", Kind: "PodMonitor"}:     func() metav1.Object { return new(podMonitor) },
	{APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule"}: func() metav1.Object { return new(prometheusRule) },
	{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:      func() metav1.Object { return new(networkingv1.NetworkPolicy) },
	{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:           func() metav1.Object { return new(policyv1.PodDisruptionBudget) },
	{APIVersion: "v1", Kind: "ConfigMap"}:                            func() metav1.Object { return new(corev1.ConfigMap) },
	{APIVersion: "v1", Kind: "PersistentVolumeClaim"}:                func() metav1.Object { return new(corev1.PersistentVolumeClaim) },
	{APIVersion: "v1", Kind: "Service"}:                              func() metav1.Object { return new(corev1.Service) },
	{APIVersion: "v1", Kind: "ServiceAccount"}:                       func() metav1.Object { return new(corev1.ServiceAccount) },
}

// add decodes the documents of a text as strictly as an API server does that is asked
// to: an unknown field or a repeated one is an error.
func (o objects) add(t *testing.T, text []byte) {
	t.Helper()
	documents := bytes.Split(append([]byte("\n"), text...), []byte("\n---"))
	for _, document := range documents {
		raw, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if string(raw) == "null" {
			continue // a template that renders nothing
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(raw, &kind); err != nil {
			t.Fatal(err)
		}
		if newObject[kind] == nil {
			t.Fatalf("%v: nothing of this kind is known here\n%s", kind, document)
		}
		object := newObject[kind]()
		strict, err := json.UnmarshalStrict(raw, object)
		if err := errors.Join(append(strict, err)...); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		name := kind.Kind + " " + object.GetName()
		if o[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		o[name] = object
	}
}

// only returns the one object of a type.
func only[T metav1.Object](t *testing.T, o objects) T {
	t.Helper()
	var found []T
	for _, object := range o {
		if typed, ok := object.(T); ok {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of the type %T, want 1", len(found), *new(T))
	}
	return found[0]
}

// settings returns the variables that the container has.
func (o objects) settings(t *testing.T) map[string]string {
	t.Helper()
	sources := container(t, o).EnvFrom
	if len(sources) != 1 || sources[0].ConfigMapRef == nil {
		t.Fatalf("the container's variables are from %v, want one ConfigMap", sources)
	}
	return o.configMap(t, sources[0].ConfigMapRef.Name)
}

// limits returns the files that the container has, by name.
func (o objects) limits(t *testing.T) map[string]string {
	t.Helper()
	for _, v := range pod(t, o).Volumes {
		if v.Name == "limits" {
			return o.configMap(t, v.ConfigMap.Name)
		}
	}
	t.Fatal("there is no volume of limits")
	return nil
}

func (o objects) configMap(t *testing.T, name string) map[string]string {
	t.Helper()
	c, ok := o["ConfigMap "+name].(*corev1.ConfigMap)
	if !ok {
		t.Fatalf("there is no ConfigMap %s", name)
	}
	return c.Data
}

func pod(t *testing.T, o objects) corev1.PodSpec {
	t.Helper()
	return only[*appsv1.Deployment](t, o).Spec.Template.Spec
}

func container(t *testing.T, o objects) corev1.Container {
	t.Helper()
	containers := pod(t, o).Containers
	if len(containers) != 1 {
		t.Fatalf("%d containers, want 1", len(containers))
	}
	return containers[0]
}

// kustomized returns what kustomize builds of a folder of deploy/kubernetes.
func kustomized(t *testing.T, folder string) objects {
	t.Helper()
	return kustomizedBy(t, "resources: [../ratelimitd/deploy/kubernetes/"+folder+"]")
}

// kustomizedBy returns what kustomize builds of a kustomization beside a clone of the
// project.
func kustomizedBy(t *testing.T, kustomization string) objects {
	t.Helper()
	files := filesys.MakeFsInMemory()
	write := func(name string, text []byte) {
		if err := files.WriteFile(name, text); err != nil {
			t.Fatal(err)
		}
	}
	write("/own/kustomization.yaml", []byte(kustomization))
	write("/own/limits/api.yaml", []byte("domain: own\n"))
	from := filepath.Join(root, "deploy/kubernetes")
	err := fs.WalkDir(os.DirFS(from), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			write(path.Join("/ratelimitd/deploy/kubernetes", name), text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/own")
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	all := objects{}
	all.add(t, text)
	return all
}

// rendered returns the chart as a release named ratelimitd, with values in YAML.
func rendered(t *testing.T, values string) objects {
	t.Helper()
	all, _, err := render(t, "ratelimitd", values)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// render returns what Helm renders of the chart, and its notes. Its error is that of
// values that the schema refuses.
func render(t *testing.T, release, values string) (all objects, notes string, err error) {
	t.Helper()
	files, err := loadChart(t).render(release, ownValues(t, values))
	if err != nil {
		return nil, "", err
	}
	all = objects{}
	for name, text := range files {
		if path.Base(name) == "NOTES.txt" {
			notes = text
			continue
		}
		all.add(t, []byte(text))
	}
	return all, notes, nil
}

// ownValues reads the values that somebody gives, in YAML.
func ownValues(t *testing.T, text string) (values map[string]any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}
