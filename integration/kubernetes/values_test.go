package kubernetes

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/ratelimitd/ratelimitd/internal/config/settings"
)

// without are the settings that the chart does not have: ports and paths that the pod
// has, what works on loopback only, and secrets, which a ConfigMap would show.
var without = []string{
	"admin.address", "admin.pprof", "grpc.address", "grpc.socket", "http.address", "limits.path",
	"limits.xds.headers", "redis.password", "redis.sentinel_password",
}

// leaves calls f for each setting of a part of a file of settings.
func leaves(prefix string, part map[string]any, f func(name string, value any)) {
	for _, key := range slices.Sorted(maps.Keys(part)) {
		if below, ok := part[key].(map[string]any); ok {
			leaves(prefix+key+".", below, f)
		} else {
			f(prefix+key, part[key])
		}
	}
}

// nested returns values of the chart with one setting.
func nested(t *testing.T, name string, value any) string {
	t.Helper()
	for _, key := range slices.Backward(strings.Split("settings."+name, ".")) {
		value = map[string]any{key: value}
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The chart has each setting of the daemon's table, by its name and kind, and no others.
func TestChartHasEachSetting(t *testing.T) {
	var defaults map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, "deploy/ratelimitd.yaml")), &defaults); err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	leaves("", defaults, func(name string, value any) {
		known[name] = true
		o, _, err := render(t, "ratelimitd", nested(t, name, value))
		if slices.Contains(without, name) {
			if err == nil {
				t.Errorf("%s can be set", name)
			}
			return
		}
		if err != nil {
			t.Errorf("values.schema.json refuses the default of %s, %v: %v", name, value, err)
			return
		}
		variable := "RATELIMITD_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
		want := fmt.Sprint(value)
		if list, ok := value.([]any); ok {
			want = fmt.Sprint(list[0]) // of one address
		}
		if number, ok := value.(float64); ok && number == float64(int64(number)) {
			want = fmt.Sprint(int64(number))
		}
		if got, isSet := o.settings(t)[variable]; !isSet || got != want {
			t.Errorf("%s is %q, want %q", variable, got, want)
		}
	})
	var schema struct{ Properties struct{ Settings properties } }
	if err := yaml.Unmarshal([]byte(readFile(t, "deploy/helm/ratelimitd/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	schema.Properties.Settings.each("", func(name string, values []string) {
		if !known[name] {
			t.Errorf("values.schema.json has %s, which is no setting", name)
		}
		for _, value := range values { // of an enumeration
			variable := "RATELIMITD_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_")) + "=" + value
			if _, _, err := settings.Load(nil, []string{variable}, ""); err != nil && strings.Contains(err.Error(), "found") && strings.Contains(err.Error(), "allowed") {
				t.Errorf("the daemon refuses %s: %v", variable, err)
			}
		}
	})
}

// properties are a part of a schema.
type properties struct {
	Properties map[string]properties
	Enum       []string
}

func (p properties) each(prefix string, f func(name string, values []string)) {
	for key, below := range p.Properties {
		if below.Properties == nil {
			f(prefix+key, below.Enum)
		} else {
			below.each(prefix+key+".", f)
		}
	}
}

// The daemon accepts the variables that the pods have, and has nothing to warn of.
func TestDaemonKnowsEachVariable(t *testing.T) {
	all := deployments(t)
	all["large numbers"] = rendered(t, "settings: {memory: {max_keys: 5000000, max_bytes: 1073741824}, metrics: {near_ratio: 0.85}, request_memory: 268435456}")
	all["lists"] = rendered(t, "settings: {redis: {mode: cluster, addresses: ['redis-0.redis:6379', 'redis-1.redis:6379']}}")
	all["a text"] = rendered(t, "settings: {redis: {mode: sentinel, sentinel_master: limits, addresses: 'a:26379,b:26379'}}")
	for name, o := range all {
		t.Run(name, func(t *testing.T) {
			var environ []string
			for variable, value := range o.settings(t) {
				environ = append(environ, variable+"="+value)
			}
			// As in the image.
			environ = append(environ, "RATELIMITD_ADMIN_ADDRESS="+find(t, "Dockerfile", `(?m)^ENV RATELIMITD_ADMIN_ADDRESS=(\S+)$`))
			s, warnings, err := settings.Load(nil, environ, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings {
				t.Error(w)
			}
			switch {
			case strings.HasSuffix(name, "memory") != (s.Store == settings.StoreMemory):
				t.Errorf("the store is %s", s.Store)
			case s.Store == settings.StoreRedis && (s.Failure.Health != settings.HealthFirstAnswer || s.Assignments.CachePath == ""):
				t.Errorf("health is %s, and assignments are in %q", s.Failure.Health, s.Assignments.CachePath)
			case name == "large numbers" && (s.Memory.MaxKeys != 5_000_000 || s.RequestMemory != 256<<20):
				t.Errorf("the numbers are %d and %d", s.Memory.MaxKeys, s.RequestMemory)
			case (name == "lists" || name == "a text") && len(s.Redis.Addresses) != 2:
				t.Errorf("the addresses are %q", s.Redis.Addresses)
			}
			for _, mount := range container(t, o).VolumeMounts {
				if file := s.Assignments.Path; s.Store == settings.StoreMemory && mount.Name == "data" && !strings.HasPrefix(file, mount.MountPath+"/") {
					t.Errorf("assignments are in %s, and the volume at %s", file, mount.MountPath)
				}
				if mount.Name == "limits" && mount.MountPath != s.Limits.Path {
					t.Errorf("limits are read from %s, and mounted at %s", s.Limits.Path, mount.MountPath)
				}
			}
		})
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for values, want := range map[string]string{
		"setings: {}":                            "setings",
		"settings: {store: disk}":                "/settings/store",
		"settings: {store: null}":                "store",
		"settings: {redis: {adresses: ['a:1']}}": "adresses",
		"settings: {redis: {password: secret}}":  "password",
		"settings: {drain_delay: 15}":            "/settings/drain_delay",
		"settings: {memory: {max_keys: many}}":   "/settings/memory/max_keys",
		"settings: {http: {address: ':80'}}":     "address",
		"limits: {api.yaml: {domain: api}}":      "/limits/api.yaml",
		"replicas: two":                          "/replicas",
		"autoscaling: {max: 4}":                  "max",
		"image: {tag: 1.5}":                      "/image/tag",
		"image: {pullPolicy: Sometimes}":         "/image/pullPolicy",
		"podMonitor: {enabled: 'yes'}":           "/podMonitor/enabled",
		"resources: {requets: {}}":               "requets",
		"settings: {drain_delay: 15 s}":          "drain_delay",
		"terminationGracePeriodSeconds: 10":      "terminationGracePeriodSeconds",
		"networkPolicy: {callers: everybody}":    "/networkPolicy/callers",
	} {
		t.Run(values, func(t *testing.T) {
			if _, _, err := render(t, "ratelimitd", values); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want a word about %s", err, want)
			}
		})
	}
}

// everyValue sets each value of the chart.
const everyValue = `
image: {repository: registry.corp/ratelimitd, tag: v0.1.0, pullPolicy: Always}
imagePullSecrets: [{name: corp}]
fullnameOverride: limiter
settings: {drain_delay: 1m30s, grpc: {tls: {cert: /tls/tls.crt, key: /tls/tls.key}}, admin: {tls: {cert: /tls/tls.crt, key: /tls/tls.key}, tokens_file: /etc/ratelimitd/tokens/tokens.yaml}}
limitsConfigMap: own
secrets: {redis: corp-redis, tokens: corp-tokens}
resources: {requests: {cpu: 2}, limits: {memory: 1Gi}}
autoscaling: {enabled: false}
replicas: 3
disruptionBudget: {enabled: false}
networkPolicy: {callers: [{podSelector: {matchLabels: {app: envoy}}}], operators: []}
podMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true, labels: {grafana_dashboard: null, dashboards: all}}
podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}
securityContext: {readOnlyRootFilesystem: false}
podAnnotations: {sidecar.istio.io/inject: "false"}
podLabels: {team: edge}
nodeSelector: {kubernetes.io/arch: arm64}
tolerations: [{key: edge, operator: Exists}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: edge, operator: Exists}]}}]}}
priorityClassName: high
env: [{name: RATELIMITD_REDIS_SENTINEL_PASSWORD, valueFrom: {secretKeyRef: {name: corp-redis, key: sentinel}}}]
volumes: [{name: tls, secret: {secretName: shop-tls}}]
volumeMounts: [{name: tls, mountPath: /tls, readOnly: true}]
`

// The values of the documentation do what it says.
func TestDocumentedValuesAreFollowed(t *testing.T) {
	o := rendered(t, find(t, "docs/kubernetes.md", "(?s)```yaml\n(# values.yaml\n.*?)```"))
	settings := o.settings(t)
	for what, found := range map[string][2]string{
		"the image":    {container(t, o).Image, "registry.corp/ratelimitd:v0.1.0"},
		"Redis":        {settings["RATELIMITD_REDIS_ADDRESSES"], "redis:6379"},
		"its user":     {settings["RATELIMITD_REDIS_USERNAME"], "ratelimitd"},
		"its password": {settings["RATELIMITD_REDIS_PASSWORD_FILE"], "/etc/ratelimitd/redis/password"},
	} {
		if found[0] != found[1] {
			t.Errorf("%s: %q, want %q", what, found[0], found[1])
		}
	}
}

// Each value does what values.yaml says.
func TestValuesAreFollowed(t *testing.T) {
	o, notes, err := render(t, "shop", everyValue)
	if err != nil {
		t.Fatal(err)
	}
	d := only[*appsv1.Deployment](t, o)
	p, c := pod(t, o), container(t, o)
	secrets := make(map[string]string)
	for _, v := range p.Volumes {
		if v.Secret != nil {
			secrets[v.Name] = v.Secret.SecretName
		}
		if v.Name == "limits" && v.ConfigMap.Name != "own" {
			t.Errorf("the limits are in %s", v.ConfigMap.Name)
		}
	}
	monitor := only[*podMonitor](t, o)
	dashboards := o["ConfigMap limiter-dashboards"].(*corev1.ConfigMap)
	policy := only[*networkingv1.NetworkPolicy](t, o).Spec.Ingress
	for what, found := range map[string][2]any{
		"the name":                  {d.Name, "limiter"},
		"the image":                 {c.Image, "registry.corp/ratelimitd:v0.1.0"},
		"the pull":                  {c.ImagePullPolicy, corev1.PullAlways},
		"the pull secret":           {p.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "corp"}}},
		"the replicas":              {*d.Spec.Replicas, 3},
		"the grace":                 {*p.TerminationGracePeriodSeconds, 90 + 15},
		"the secrets":               {secrets, map[string]string{"redis": "corp-redis", "tokens": "corp-tokens", "tls": "shop-tls"}},
		"the memory":                {c.Resources.Limits.Memory().String(), "1Gi"},
		"the CPU":                   {c.Resources.Requests.Cpu().String(), "2"},
		"the readiness over TLS":    {c.ReadinessProbe.Exec.Command, []string{"/bin/ratelimitd", "health"}},
		"the liveness over TLS":     {c.LivenessProbe.HTTPGet.Scheme, corev1.URISchemeHTTPS},
		"the label":                 {d.Spec.Template.Labels["team"], "edge"},
		"the annotation":            {d.Spec.Template.Annotations["sidecar.istio.io/inject"], "false"},
		"the node":                  {p.NodeSelector, map[string]string{"kubernetes.io/arch": "arm64"}},
		"the toleration":            {p.Tolerations[0].Key, "edge"},
		"the affinity":              {p.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Weight, 1},
		"the priority":              {p.PriorityClassName, "high"},
		"the variable":              {c.Env[0].ValueFrom.SecretKeyRef.Key, "sentinel"},
		"the mount":                 {c.VolumeMounts[len(c.VolumeMounts)-1].MountPath, "/tls"},
		"the monitor's label":       {monitor.Labels["release"], "prometheus"},
		"the alerts' label":         {o["PrometheusRule limiter-alerts"].GetLabels()["release"], "prometheus"},
		"the dashboards' labels":    {dashboards.Labels["grafana_dashboard"] + dashboards.Labels["dashboards"], "all"},
		"the root file system":      {*c.SecurityContext.ReadOnlyRootFilesystem, false},
		"the capabilities":          {c.SecurityContext.Capabilities.Drop, []string{"ALL"}},
		"the callers":               {policy[0].From[0].PodSelector.MatchLabels, map[string]string{"app": "envoy"}},
		"the rules for the network": {len(policy), 1},
	} {
		if fmt.Sprint(found[0]) != fmt.Sprint(found[1]) {
			t.Errorf("%s: %v, want %v", what, found[0], found[1])
		}
	}
	if s := p.SecurityContext; s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || !*s.RunAsNonRoot {
		t.Errorf("the pod runs as %v", s)
	}
	for name, object := range o {
		switch object.(type) {
		case *autoscalingv2.HorizontalPodAutoscaler, *policyv1.PodDisruptionBudget:
			t.Errorf("there is a %s", name)
		}
		if object.GetLabels()["app.kubernetes.io/instance"] != "shop" {
			t.Errorf("%s has the labels %v", name, object.GetLabels())
		}
	}
	if o["ConfigMap limiter-limits"] != nil {
		t.Error("there are two ConfigMaps of limits")
	}
	for _, want := range []string{"limiter.limits.svc:8081", "limiter-headless.limits.svc:8081", "deployment/limiter"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %s:\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "tokens file") {
		t.Errorf("the notes ask for a tokens file:\n%s", notes)
	}

	if limits := rendered(t, "limits: {shop.yaml: 'domain: shop'}").limits(t); len(limits) != 1 || limits["shop.yaml"] != "domain: shop" {
		t.Errorf("the limits are %v", limits)
	}
	certificates := rendered(t, "settings: {admin: {tls: {cert: a, key: b, client_ca: c}}}")
	if probe := container(t, certificates).LivenessProbe; probe.TCPSocket == nil || probe.HTTPGet != nil {
		t.Error("a probe would need a certificate")
	}
	if o := rendered(t, "networkPolicy: {enabled: false}"); o["NetworkPolicy ratelimitd"] != nil {
		t.Error("there is a NetworkPolicy")
	}
	claim := only[*corev1.PersistentVolumeClaim](t, rendered(t, "settings: {store: memory}\npersistence: {size: 5Gi, storageClass: fast}"))
	if size := claim.Spec.Resources.Requests.Storage().String(); size != "5Gi" || *claim.Spec.StorageClassName != "fast" {
		t.Errorf("the claim is for %s of %v", size, claim.Spec.StorageClassName)
	}
}

// The chart installs the alerts, recording rules and dashboards as they are in the project.
func TestChartHasAlertsAndDashboards(t *testing.T) {
	if o := rendered(t, ""); o["PrometheusRule ratelimitd-alerts"] != nil || o["ConfigMap ratelimitd-dashboards"] != nil {
		t.Error("they are there without being asked for")
	}
	o, _, err := render(t, "shop", "prometheusRule: {enabled: true}\ndashboards: {enabled: true}")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alerts", "recording"} {
		var want map[string]any
		if err := yaml.Unmarshal([]byte(readFile(t, "deploy/prometheus/"+name+".yaml")), &want); err != nil {
			t.Fatal(err)
		}
		if rule := o["PrometheusRule shop-ratelimitd-"+name].(*prometheusRule); !reflect.DeepEqual(rule.Spec, want) {
			t.Errorf("the rules are %v, want %v", rule.Spec, want)
		}
	}
	dashboards := o["ConfigMap shop-ratelimitd-dashboards"].(*corev1.ConfigMap)
	if dashboards.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the dashboards have the labels %v", dashboards.Labels)
	}
	for _, name := range []string{"overview", "rule"} {
		if got := dashboards.Data["ratelimitd-"+name+".json"]; strings.TrimSpace(got) != strings.TrimSpace(readFile(t, "deploy/grafana/dashboards/"+name+".json")) {
			t.Errorf("the dashboard %s differs from the one in deploy/grafana", name)
		}
	}
	c := loadChart(t)
	delete(c.files, "rules/alerts.yaml") // as by a tool that does not follow links
	if _, err := c.render("shop", ownValues(t, "prometheusRule: {enabled: true}")); err == nil || !strings.Contains(err.Error(), "rules/alerts.yaml is not in this chart") {
		t.Errorf("without the alerts: error %v", err)
	}
}

// An upgrade does not put the chart's example in the place of somebody's limits.
func TestAnUpgradeNamesItsLimits(t *testing.T) {
	c := loadChart(t)
	c.isUpgrade = true
	for values, allowed := range map[string]bool{
		"":                          false,
		"image: {tag: v0.2.0}":      false,
		"settings: {store: memory}": false,
		"limits: {a.yaml: ''}":      true,
		"limitsConfigMap: own":      true,
		"settings: {limits: {source: xds, xds: {address: 'a:1'}}}": true,
	} {
		if _, err := c.render("shop", ownValues(t, values)); (err == nil) != allowed || err != nil && !strings.Contains(err.Error(), "limits: found none; allowed: ") {
			t.Errorf("%q: %v", values, err)
		}
	}
}

// New settings replace the pods, and new limits do not.
func TestNewSettingsReplaceThePods(t *testing.T) {
	template := func(values string) string {
		text, err := yaml.Marshal(only[*appsv1.Deployment](t, rendered(t, values)).Spec.Template)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if template("settings: {log: {level: debug}}") == template("") {
		t.Error("pods go on with the former settings")
	}
	if template("limits: {api.yaml: 'domain: other'}") != template("") {
		t.Error("new limits replace the pods")
	}
	name := func(kustomization string) string {
		return container(t, kustomizedBy(t, "resources: [../ratelimitd/deploy/kubernetes]\n"+kustomization)).EnvFrom[0].ConfigMapRef.Name
	}
	if name("configMapGenerator: [{name: ratelimitd, behavior: merge, literals: [RATELIMITD_LOG_LEVEL=debug]}]") == name("") {
		t.Error("kustomize: pods go on with the former settings")
	}
}
