//go:build helm && !race

package kubernetes

import (
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

// Run it when the chart or the renderer of these tests changes:
//
//	go test -tags helm ./integration/kubernetes
func TestHelmRendersTheSame(t *testing.T) {
	for _, values := range []string{
		"", memoryStore, everyValue, "settings: {store: null}", "setings: {}", "replicas: null",
		"settings: {memory: {max_keys: 5000000}, redis: {addresses: ['a:1', 'b:1']}}\nlimits: {a.yaml: 'domain: a'}\npersistence: {storageClass: fast}",
	} {
		helm, err := loader.LoadDir(filepath.Join(root, "deploy/helm/ratelimitd"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := loadChart(t).render("shop", ownValues(t, values))
		full, wantErr := util.ToRenderValues(helm, ownValues(t, values), common.ReleaseOptions{Name: "shop", Namespace: "limits", IsInstall: true, Revision: 1}, nil)
		if wantErr != nil {
			if err == nil || !strings.Contains(wantErr.Error(), last(err)) {
				t.Errorf("%q: the error is %v, Helm's %v", values, err, wantErr)
			}
			continue
		}
		want, wantErr := engine.Render(helm, full)
		if err != nil || wantErr != nil {
			t.Errorf("%q: %v; Helm: %v", values, err, wantErr)
			continue
		}
		for name := range want {
			ours := strings.TrimPrefix(name, "ratelimitd/")
			if got[ours] != want[name] {
				t.Errorf("%q: %s is\n%s\nby Helm\n%s", values, ours, got[ours], want[name])
			}
			delete(got, ours)
		}
		for name := range got {
			if got[name] != "" {
				t.Errorf("%q: Helm does not render %s", values, name)
			}
		}
	}
}

// last returns the last line of an error: what is wrong, without where the schema is.
func last(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
