package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"sigs.k8s.io/yaml"
)

const memoryStore = "settings: {store: memory}"

// deployments has what people apply, by name.
func deployments(t *testing.T) map[string]objects {
	t.Helper()
	return map[string]objects{
		"kustomize":         kustomized(t, ""),
		"kustomize, memory": kustomized(t, "memory"),
		"helm":              rendered(t, ""),
		"helm, memory":      rendered(t, memoryStore),
	}
}

// readFile returns a file of the project.
func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// find returns the part of a file of the project that an expression has in parentheses.
func find(t *testing.T, name, expression string) string {
	t.Helper()
	found := regexp.MustCompile(expression).FindStringSubmatch(readFile(t, name))
	if found == nil {
		t.Fatalf("%s has nothing like %s", name, expression)
	}
	return found[1]
}

// plain returns objects as JSON, without what only Helm or only kustomize adds.
func plain(t *testing.T, o objects) map[string]string {
	t.Helper()
	result := make(map[string]string)
	hash := regexp.MustCompile(`\b(ratelimitd)-[a-z0-9]{10}\b`)
	for name, object := range o {
		labels := maps.Clone(object.GetLabels())
		maps.DeleteFunc(labels, func(key, _ string) bool {
			return slices.Contains([]string{"app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}, key)
		})
		object.SetLabels(labels)
		if d, ok := object.(*appsv1.Deployment); ok {
			delete(d.Spec.Template.Annotations, "checksum/settings")
			if len(d.Spec.Template.Annotations) == 0 {
				d.Spec.Template.Annotations = nil
			}
			slices.SortFunc(d.Spec.Template.Spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
		}
		text, err := json.MarshalIndent(object, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		result[hash.ReplaceAllString(name, "$1")] = hash.ReplaceAllString(string(text), "$1")
	}
	return result
}

// Whoever applies the folder has what the chart installs.
func TestChartAndKustomizationAreEqual(t *testing.T) {
	const monitored = "resources: [../ratelimitd/deploy/kubernetes]\ncomponents: [../ratelimitd/deploy/kubernetes/pod-monitor]\n"
	for _, c := range []struct {
		name                string
		kustomize, rendered objects
	}{
		{"redis", kustomized(t, ""), rendered(t, "")},
		{"memory", kustomized(t, "memory"), rendered(t, memoryStore)},
		{"with a PodMonitor", kustomizedBy(t, monitored), rendered(t, "podMonitor: {enabled: true}")},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, h := plain(t, c.kustomize), plain(t, c.rendered)
			for name := range k {
				if k[name] != h[name] {
					t.Errorf("%s: kustomize has\n%s\nthe chart\n%s", name, k[name], h[name])
				}
			}
			for name := range h {
				if k[name] == "" {
					t.Errorf("kustomize has no %s", name)
				}
			}
		})
	}
}

// The pods keep to the standard "restricted" of Kubernetes, and to what the image is.
func TestPodsHaveNoRights(t *testing.T) {
	for name, o := range deployments(t) {
		t.Run(name, func(t *testing.T) {
			p, c := pod(t, o), container(t, o)
			user := find(t, "Dockerfile", `(?m)^USER (\d+:\d+)$`)
			s := p.SecurityContext
			if !*s.RunAsNonRoot || fmt.Sprintf("%d:%d", *s.RunAsUser, *s.RunAsGroup) != user || fmt.Sprint(*s.FSGroup) != strings.Split(user, ":")[1] {
				t.Errorf("the pod runs as %v, the image as %s", s, user)
			}
			if s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("seccomp is %v", s.SeccompProfile)
			}
			if *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem ||
				!slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) || c.SecurityContext.Capabilities.Add != nil {
				t.Errorf("the container may %v", c.SecurityContext)
			}
			if account := only[*corev1.ServiceAccount](t, o); *p.AutomountServiceAccountToken || *account.AutomountServiceAccountToken || p.ServiceAccountName != account.Name {
				t.Error("a token of the API server is mounted")
			}
			if *p.EnableServiceLinks {
				t.Error("the pod has variables of Services")
			}
			if p.HostNetwork || p.HostPID || p.HostIPC {
				t.Error("the pod has namespaces of its host")
			}
			for _, v := range p.Volumes {
				if v.HostPath != nil {
					t.Errorf("the volume %s is a path of its host", v.Name)
				}
			}
		})
	}
}

func TestImageIsTheOneThatIsBuilt(t *testing.T) {
	image := find(t, "Makefile", `(?m)^IMAGE +\?= (\S+)$`)
	for name, o := range deployments(t) {
		// With the tag latest the default would be Always, which no image on the node meets.
		if c := container(t, o); c.Image != image || c.ImagePullPolicy != corev1.PullIfNotPresent {
			t.Errorf("%s: %s, pulled %s; make image builds %s", name, c.Image, c.ImagePullPolicy, image)
		}
	}
	example := readFile(t, "deploy/kubernetes/examples/envoy-gateway.yaml")
	if !strings.Contains(example, "image: "+image+"\n") {
		t.Errorf("the example of Envoy Gateway does not name %s", image)
	}
}

// Selectors find the pods, and names of ports, volumes and objects exist.
func TestNamesLeadSomewhere(t *testing.T) {
	for name, o := range deployments(t) {
		t.Run(name, func(t *testing.T) {
			d := only[*appsv1.Deployment](t, o)
			p, c := pod(t, o), container(t, o)
			labels := d.Spec.Template.Labels
			selects := func(what string, selector map[string]string) {
				t.Helper()
				if len(selector) == 0 {
					t.Errorf("%s selects all pods", what)
				}
				for key, value := range selector {
					if labels[key] != value {
						t.Errorf("%s selects %s=%s; the pods have %v", what, key, value, labels)
					}
				}
			}
			ports := make(map[string]int32)
			for _, port := range c.Ports {
				ports[port.Name] = port.ContainerPort
			}
			exposed := strings.Fields(find(t, "Dockerfile", `(?m)^EXPOSE (.*)$`))
			slices.Sort(exposed)
			if found := []string{fmt.Sprint(ports["admin"]), fmt.Sprint(ports["http"]), fmt.Sprint(ports["grpc"])}; !slices.Equal(found, exposed) {
				t.Errorf("the ports are %v, those of the image %v", found, exposed)
			}

			selects("the Deployment", d.Spec.Selector.MatchLabels)
			for _, constraint := range p.TopologySpreadConstraints {
				selects("the spread over "+constraint.TopologyKey, constraint.LabelSelector.MatchLabels)
			}
			headless := 0
			for _, object := range o {
				switch object := object.(type) {
				case *corev1.Service:
					selects(object.Name, object.Spec.Selector)
					if object.Spec.ClusterIP == corev1.ClusterIPNone {
						headless++
					}
					for _, port := range object.Spec.Ports {
						if ports[port.TargetPort.StrVal] != port.Port || port.TargetPort.StrVal == "admin" {
							t.Errorf("%s: port %d is %s", object.Name, port.Port, port.TargetPort.StrVal)
						}
					}
				case *networkingv1.NetworkPolicy:
					selects(object.Name, object.Spec.PodSelector.MatchLabels)
					for _, rule := range object.Spec.Ingress {
						if len(rule.From) == 0 {
							t.Error("the NetworkPolicy lets everybody in")
						}
						for _, port := range rule.Ports {
							if ports[port.Port.StrVal] == 0 {
								t.Errorf("the NetworkPolicy names the port %s", port.Port)
							}
						}
					}
				case *policyv1.PodDisruptionBudget:
					selects(object.Name, object.Spec.Selector.MatchLabels)
				case *podMonitor:
					selects(object.Name, object.Spec.Selector.MatchLabels)
				case *autoscalingv2.HorizontalPodAutoscaler:
					if target := object.Spec.ScaleTargetRef; target.Kind != "Deployment" || target.Name != d.Name || target.APIVersion != d.APIVersion {
						t.Errorf("the autoscaler scales %v", target)
					}
				}
			}
			if headless != 1 {
				t.Errorf("%d headless Services", headless)
			}
			for _, mount := range c.VolumeMounts {
				if !slices.ContainsFunc(p.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name }) {
					t.Errorf("there is no volume %s", mount.Name)
				}
			}
			for _, v := range p.Volumes {
				if claim := v.PersistentVolumeClaim; claim != nil && o["PersistentVolumeClaim "+claim.ClaimName] == nil {
					t.Errorf("there is no claim %s", claim.ClaimName)
				}
			}
		})
	}
}

// A pod that is stopped has time for its drain delay and the requests in flight; until a
// new one is ready, no other is stopped. One daemon with a file of its own is alone.
func TestPodsAreReplacedWithoutALoss(t *testing.T) {
	const inFlight, room = 5 * time.Second, 5 * time.Second // Server.shutdown of internal/server waits so long
	for name, o := range deployments(t) {
		t.Run(name, func(t *testing.T) {
			delay, err := time.ParseDuration(o.settings(t)["RATELIMITD_DRAIN_DELAY"])
			if err != nil {
				t.Fatal(err)
			}
			if grace := time.Duration(*pod(t, o).TerminationGracePeriodSeconds) * time.Second; grace < delay+inFlight+room {
				t.Errorf("a pod has %v to end, and takes %v", grace, delay+inFlight)
			}
			spec := only[*appsv1.Deployment](t, o).Spec
			if strings.HasSuffix(name, "memory") {
				if spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || spec.Strategy.RollingUpdate != nil || *spec.Replicas != 1 {
					t.Errorf("%d replicas, replaced by %v", *spec.Replicas, spec.Strategy)
				}
				return
			}
			if rolling := spec.Strategy.RollingUpdate; rolling == nil || rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge.IntValue() < 1 {
				t.Errorf("pods are replaced by %v", spec.Strategy)
			}
			if spec.Replicas != nil {
				t.Error("an apply sets the replicas that the autoscaler has set")
			}
			if scaled := only[*autoscalingv2.HorizontalPodAutoscaler](t, o).Spec; *scaled.MinReplicas < 2 {
				t.Error("there may be one pod, whose node cannot be drained")
			}
		})
	}
}

// The kustomizations of the documentation do what it says.
func TestDocumentedKustomizationBuilds(t *testing.T) {
	text := find(t, "docs/kubernetes.md", "(?s)```yaml\n(# kustomization.yaml\n.*?)```")
	o := kustomizedBy(t, text)
	var want struct {
		Namespace          string
		Images             []struct{ NewName, NewTag string }
		ConfigMapGenerator []struct {
			Name     string
			Literals []string
		}
	}
	if err := yaml.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if image := want.Images[0].NewName + ":" + want.Images[0].NewTag; container(t, o).Image != image {
		t.Errorf("the image is %s, want %s", container(t, o).Image, image)
	}
	operators := only[*networkingv1.NetworkPolicy](t, o).Spec.Ingress[1].From[0]
	if namespace := operators.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]; namespace != "observability" {
		t.Errorf("Prometheus is in the namespace %q", namespace)
	}
	settings := o.settings(t)
	for _, generated := range want.ConfigMapGenerator {
		for _, literal := range generated.Literals {
			if name, value, _ := strings.Cut(literal, "="); settings[name] != value {
				t.Errorf("%s is %q, want %q", name, settings[name], value)
			}
		}
	}
	if settings["RATELIMITD_STORE"] != "redis" {
		t.Error("the other settings are gone")
	}
	if limits := o.limits(t); len(limits) != 1 || limits["api.yaml"] != "domain: own\n" {
		t.Errorf("the limits are %v", limits)
	}
	for name, object := range o {
		if object.GetNamespace() != want.Namespace {
			t.Errorf("%s is in the namespace %q", name, object.GetNamespace())
		}
	}
	only[*podMonitor](t, o)
}
