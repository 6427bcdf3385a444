package integration

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// dashboard is a Grafana dashboard in the classic model, with what it may have; what
// the tests do not read is any.
type dashboard struct {
	UID           string  `json:"uid"`
	Title         string  `json:"title"`
	Description   string  `json:"description"`
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []panel `json:"panels"`
	Links         []struct {
		Title       string   `json:"title"`
		Type        string   `json:"type"`
		Icon        string   `json:"icon"`
		Tooltip     string   `json:"tooltip"`
		URL         string   `json:"url"`
		Tags        []string `json:"tags"`
		AsDropdown  bool     `json:"asDropdown"`
		TargetBlank bool     `json:"targetBlank"`
		IncludeVars bool     `json:"includeVars"`
		KeepTime    bool     `json:"keepTime"`
	} `json:"links"`
	Templating struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Annotations struct {
		// Data sources have fields of their own there.
		List []annotation `json:"list"`
	} `json:"annotations"`
	ID                   *int     `json:"id"`
	Tags                 []string `json:"tags"`
	Timezone             string   `json:"timezone"`
	Editable             bool     `json:"editable"`
	GraphTooltip         int      `json:"graphTooltip"`
	Time                 any      `json:"time"`
	Timepicker           any      `json:"timepicker"`
	FiscalYearStartMonth int      `json:"fiscalYearStartMonth"`
	WeekStart            string   `json:"weekStart"`
	Refresh              string   `json:"refresh"`
	Version              int      `json:"version"`
}

type annotation map[string]any

// expr returns the annotation's query of Prometheus, or "".
func (a annotation) expr() string { s, _ := a["expr"].(string); return s }

// panel is a panel, or a row, which has fewer fields.
type panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  datasource `json:"datasource"`
	GridPos     struct{ X, Y, W, H int }
	Repeat      string `json:"repeat"`
	Collapsed   bool   `json:"collapsed"`
	Panels      []any  `json:"panels"` // of a collapsed row
	FieldConfig struct {
		Defaults struct {
			Unit       string   `json:"unit"`
			Min        *float64 `json:"min"`
			Max        *float64 `json:"max"`
			Mappings   []any    `json:"mappings"`
			NoValue    string   `json:"noValue"`
			Thresholds struct {
				Mode  string `json:"mode"`
				Steps []struct {
					Value *float64 `json:"value"`
					Color string   `json:"color"`
				} `json:"steps"`
			} `json:"thresholds"`
			Color struct {
				Mode string `json:"mode"`
			} `json:"color"`
			Custom any `json:"custom"`
		} `json:"defaults"`
		Overrides []struct {
			Matcher struct {
				ID      string `json:"id"`
				Options string `json:"options"`
			} `json:"matcher"`
			Properties []struct {
				ID    string `json:"id"`
				Value any    `json:"value"`
			} `json:"properties"`
		} `json:"overrides"`
	} `json:"fieldConfig"`
	Options         any `json:"options"` // by the type of the panel
	Transformations []struct {
		ID      string `json:"id"`
		Options any    `json:"options"`
	} `json:"transformations"`
	Targets []query `json:"targets"`
}

// query is a query of Grafana's data source for Prometheus.
type query struct {
	RefID      string     `json:"refId"`
	Expr       string     `json:"expr"`
	Datasource datasource `json:"datasource"`
	EditorMode string     `json:"editorMode"`
	Legend     string     `json:"legendFormat"`
	Instant    bool       `json:"instant"`
	Range      bool       `json:"range"`
	Format     string     `json:"format"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type variable struct {
	Name        string     `json:"name"`
	Type        string     `json:"type"`
	Query       any        `json:"query"`
	Datasource  datasource `json:"datasource"`
	Definition  string     `json:"definition"`
	Label       string     `json:"label"`
	Multi       bool       `json:"multi"`
	IncludeAll  bool       `json:"includeAll"`
	Refresh     int        `json:"refresh"`
	Sort        int        `json:"sort"`
	Hide        int        `json:"hide"`
	SkipURLSync bool       `json:"skipUrlSync"`
	Regex       string     `json:"regex"`
	Options     []any      `json:"options"`
	Current     any        `json:"current"`
}

// readDashboards returns the shipped dashboards by their files.
func readDashboards(t testing.TB) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(projectRoot, "deploy/grafana/dashboards/*.json"))
	if err != nil || len(files) != 2 {
		t.Fatal("want two dashboards:", files, err)
	}
	all := make(map[string]dashboard)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = d
	}
	return all
}

// builtIn are the variables that Grafana has by itself.
var builtIn = []string{"__rate_interval", "__range", "__url_time_range", "__data", "__all"}

// single reports whether a variable has one value at a time. Grafana escapes the
// values of others for a regular expression, and those of such a one not.
func (v variable) single() bool { return !v.Multi && !v.IncludeAll }

func TestDashboardsAreWhole(t *testing.T) {
	t.Parallel()
	boards := readDashboards(t)
	for file, d := range boards {
		t.Run(file, func(t *testing.T) {
			// Any later Grafana migrates this one, that of Grafana 11.
			if d.UID == "" || d.Title == "" || d.Description == "" || d.SchemaVersion != 39 {
				t.Errorf("its uid is %q, its title %q, its description %q, its schema version %d", d.UID, d.Title, d.Description, d.SchemaVersion)
			}
			text := readPage(t, filepath.Join("deploy/grafana/dashboards", file))
			checkVariables(t, d, text)
			ids := make(map[int]bool)
			for _, p := range d.Panels {
				if ids[p.ID] {
					t.Errorf("%s: the id %d is taken", p.Title, p.ID)
				}
				ids[p.ID] = true
				checkPanel(t, p)
			}
			links := regexp.MustCompile(`"url": "([^"]*)"`).FindAllStringSubmatch(text, -1)
			if len(links) == 0 {
				t.Error("it leads nowhere")
			}
			for _, m := range links {
				checkDashboardLink(t, m[1], boards)
			}
		})
	}
}

// checkVariables checks that the variables of a dashboard, whose text is given, are
// those that it uses, and that queries compare with them as Grafana writes them: an
// unescaped value by =, or "tenant (plan free)" would be a regular expression that
// does not match itself; escaped ones by =~.
func checkVariables(t *testing.T, d dashboard, text string) {
	t.Helper()
	known := slices.Clone(builtIn)
	for _, v := range d.Templating.List {
		known = append(known, v.Name)
		if !regexp.MustCompile(`\$\{?` + v.Name + `\b`).MatchString(text) {
			t.Errorf("nothing uses the variable %s", v.Name)
		}
		for _, m := range regexp.MustCompile(`(=~?)\\"\$`+v.Name+`\\"`).FindAllStringSubmatch(text, -1) {
			if want := map[bool]string{true: "=", false: "=~"}[v.single()]; m[1] != want {
				t.Errorf("a query compares with the variable %s by %s, want %s", v.Name, m[1], want)
				break
			}
		}
		if v.Type == "query" && v.Definition != v.Query.(map[string]any)["query"] {
			t.Errorf("the variable %s is %v, and says it were %s", v.Name, v.Query, v.Definition)
		}
	}
	for _, p := range d.Panels {
		text += "$" + p.Repeat // which has no $ there
	}
	for _, m := range regexp.MustCompile(`\$\{?([a-z_]\w*)`).FindAllStringSubmatch(text, -1) {
		if !slices.Contains(known, m[1]) {
			t.Errorf("there is no variable %s", m[1])
		}
	}
}

// checkDashboardLink checks that a link leads to a dashboard, which has the variables
// that it sets.
func checkDashboardLink(t *testing.T, url string, boards map[string]dashboard) {
	t.Helper()
	uid, query, _ := strings.Cut(strings.TrimPrefix(url, "/d/"), "?")
	for _, d := range boards {
		if d.UID != uid {
			continue
		}
		for _, m := range regexp.MustCompile(`var-(\w+)=|\$\{(\w+):queryparam\}`).FindAllStringSubmatch(query, -1) {
			if !slices.ContainsFunc(d.Templating.List, func(v variable) bool { return v.Name == m[1]+m[2] }) {
				t.Errorf("%s sets %s, which is no variable of %s", url, m[1]+m[2], d.Title)
			}
		}
		return
	}
	t.Errorf("%s leads to no dashboard", url)
}

// checkPanel checks that a panel says what it shows, and asks the chosen data source.
func checkPanel(t *testing.T, p panel) {
	t.Helper()
	if !slices.Contains([]string{"row", "stat", "timeseries", "table", "heatmap"}, p.Type) || p.Title == "" {
		t.Errorf("panel %d %q is of type %q", p.ID, p.Title, p.Type)
	}
	if p.Type == "row" {
		return
	}
	chosen := datasource{Type: "prometheus", UID: "${datasource}"}
	if p.Description == "" || p.Datasource != chosen || len(p.Targets) == 0 || p.FieldConfig.Defaults.Unit == "" && p.Type != "heatmap" {
		t.Errorf("%s: it has the description %q, %d queries of %v, the unit %q", p.Title, p.Description, len(p.Targets), p.Datasource, p.FieldConfig.Defaults.Unit)
	}
	for i, step := range p.FieldConfig.Defaults.Thresholds.Steps {
		if (step.Value == nil) != (i == 0) || step.Color == "" {
			t.Errorf("%s: the thresholds do not begin with one without a value, or go on with one: %+v", p.Title, p.FieldConfig.Defaults.Thresholds)
		}
	}
	refs := make(map[string]bool)
	for _, q := range p.Targets {
		if formats := []string{"", "table", "heatmap"}; !slices.Contains(formats, q.Format) {
			t.Errorf("%s: the query %+v is shown as none of %q", p.Title, q, formats)
		}
		if refs[q.RefID] || q.RefID == "" || q.Expr == "" || q.Datasource != chosen || q.Instant == q.Range {
			t.Errorf("%s: the query %+v", p.Title, q)
		}
		refs[q.RefID] = true
		// What nobody asked divides by nothing, and a stat would show NaN.
		if p.Type == "stat" && (strings.Contains(q.Expr, " / ") || strings.Contains(q.Expr, "quantile")) && !regexp.MustCompile(` > 0\)$| >= 0$`).MatchString(q.Expr) {
			t.Errorf("%s: %s is NaN while nothing is asked", p.Title, q.Expr)
		}
		// More daemons and jobs may be in the same Prometheus.
		if got, want := strings.Count(q.Expr, `{job=~"$job"`), strings.Count(q.Expr, "{"); got != want || got == 0 {
			t.Errorf("%s: %s asks for all jobs", p.Title, q.Expr)
		}
	}
}

// readYAML reads a YAML file of the project.
func readYAML(t testing.TB, file string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readPage(t, file)), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
