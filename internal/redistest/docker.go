//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

const (
	// ownerLabel carries, on a container, the process that it is for.
	ownerLabel = "ratelimitd.redistest.owner"

	pingTimeout = 2 * time.Second
	// answerTimeout is how long a container that runs may take until its
	// Redis answers. Where the engine publishes ports on another loopback
	// than ours, as for a test in a container, it never does.
	answerTimeout = 15 * time.Second
	// containerAttempts is how often new ports are tried.
	containerAttempts = 4
)

// errRun means that the engine did not run a container. One reason is that another
// process took its port, which engines say in different words.
var errRun = errors.New("run a container")

// setUpTestcontainers is once for the process, since the two kinds are opened at the same
// time. testcontainers' reaper is an image to pull; removeContainersOfTheDead does its
// work. testcontainers reads the variable once, and only as "true".
var setUpTestcontainers = sync.OnceValue(func() error {
	log.SetDefault(log.NewNoopLogger())
	return os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
})

// openDocker starts a container. A cluster's nodes are processes of one
// container, published on the ports that they have in it: so an address means
// the same node to a client as to another node, on every kind of engine.
func openDocker(ctx context.Context, k kind) (source, error) {
	if err := pingDocker(ctx); err != nil {
		return source{}, fmt.Errorf("a Docker engine is %w: %w", errUnavailable, err)
	}
	if err := setUpTestcontainers(); err != nil {
		return source{}, err
	}
	cli, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return source{}, fmt.Errorf("make a Docker client: %w", err)
	}
	removeContainersOfTheDead(ctx, cli)
	image, err := findImage(ctx, cli)
	if err != nil {
		return source{}, err
	}
	n := 1
	if k == kindCluster {
		n = sharedMasters
	}
	for attempt := 1; ; attempt++ {
		c, err := startContainer(ctx, cli, image, n)
		if err == nil {
			return source{addrs: c.addrs(), from: "Docker image " + image, stop: c.discard}, nil
		}
		if !errors.Is(err, errRun) || attempt == containerAttempts || ctx.Err() != nil {
			return source{}, fmt.Errorf("image %s: %w", image, err)
		}
	}
}

// pingDocker returns nil if an engine on this machine answers. testcontainers' own
// discovery panics if there is none.
func pingDocker(ctx context.Context) error {
	cli, err := client.New(client.FromEnv)
	if err != nil {
		return err
	}
	defer cli.Close()
	if host := cli.DaemonHost(); !local(host) {
		return fmt.Errorf("%s is not on this machine", host)
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err = cli.Ping(ctx, client.PingOptions{})
	return err
}

func local(dockerHost string) bool {
	u, err := url.Parse(dockerHost)
	if err != nil {
		return false
	}
	if u.Scheme == "unix" || u.Hostname() == "localhost" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}

// redisContainer is a container with one redis-server per port.
type redisContainer struct {
	cli   *testcontainers.DockerClient
	id    string // "" until it exists
	ports []int
}

// startContainer starts a container with n servers, which form a cluster if
// they are several, and returns when they serve.
func startContainer(ctx context.Context, cli *testcontainers.DockerClient, image string, n int) (_ *redisContainer, err error) {
	c := &redisContainer{cli: cli}
	defer func() {
		if err != nil {
			c.discard()
		}
	}()
	for range n {
		port, err := reservePort()
		if err != nil {
			return nil, err
		}
		c.ports = append(c.ports, port)
	}
	ctr, err := c.run(ctx, image)
	if err != nil {
		return nil, err
	}
	for _, port := range c.ports[1:] {
		if err := execServer(ctx, ctr, c.command(port)); err != nil {
			return nil, err
		}
	}
	if err := c.waitAnswer(ctx); err != nil {
		return nil, err
	}
	if n > 1 {
		if err := formCluster(ctx, c.addrs(), 0); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// run starts the container and in it, as its first process, the first server.
func (c *redisContainer) run(ctx context.Context, image string) (*testcontainers.DockerContainer, error) {
	exposed := make([]string, len(c.ports))
	bindings := network.PortMap{}
	for i, port := range c.ports {
		exposed[i] = strconv.Itoa(port) + "/tcp"
		p, err := network.ParsePort(exposed[i])
		if err != nil {
			return nil, err
		}
		bindings[p] = []network.PortBinding{{
			HostIP:   netip.AddrFrom4([4]byte{127, 0, 0, 1}),
			HostPort: strconv.Itoa(port),
		}}
	}
	ctr, err := testcontainers.Run(ctx, image,
		testcontainers.WithLogger(log.NewNoopLogger()),
		testcontainers.WithCmd(c.command(c.ports[0])...),
		testcontainers.WithExposedPorts(exposed...),
		testcontainers.WithLabels(map[string]string{ownerLabel: self().String()}),
		testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
			hc.PortBindings = bindings
		}),
	)
	if ctr != nil {
		c.id = ctr.GetContainerID()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRun, err)
	}
	return ctr, nil
}

// command returns the command line of the server at port.
func (c *redisContainer) command(port int) []string {
	cmd := []string{
		"redis-server",
		"--port", strconv.Itoa(port),
		// The published port comes in from outside the container's loopback.
		"--bind", "0.0.0.0",
		"--protected-mode", "no",
		"--dir", "/data",
		"--save", "",
		"--appendonly", "no",
	}
	if len(c.ports) > 1 {
		cmd = append(cmd, clusterArgs(sharedNodeTimeout)...)
		cmd = append(cmd,
			"--cluster-config-file", fmt.Sprintf("nodes-%d.conf", port),
			"--cluster-announce-ip", "127.0.0.1",
		)
	}
	return cmd
}

// execServer starts one more server in a container that runs. It puts itself
// into the background; the container ends with its first process.
func execServer(ctx context.Context, ctr *testcontainers.DockerContainer, cmd []string) error {
	code, out, err := ctr.Exec(ctx, append(cmd, "--daemonize", "yes"))
	if err != nil {
		return fmt.Errorf("start a server in the container: %w", err)
	}
	if code != 0 {
		said, _ := io.ReadAll(out)
		return fmt.Errorf("start a server in the container: exit %d: %s", code, said)
	}
	return nil
}

func (c *redisContainer) waitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for _, addr := range c.addrs() {
		r := dial(addr, "")
		err := until(ctx, "wait for "+addr, func(ctx context.Context) error {
			if err := knock(ctx, addr); err != nil {
				return err
			}
			return r.Ping(ctx).Err()
		})
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *redisContainer) addrs() []string {
	addrs := make([]string, len(c.ports))
	for i, port := range c.ports {
		addrs[i] = loopback(port)
	}
	return addrs
}

// discard removes the container and gives back its ports.
func (c *redisContainer) discard() {
	if c.id != "" {
		ctx, cancel := context.WithTimeout(context.Background(), startDeadline)
		defer cancel()
		removeContainer(ctx, c.cli, c.id)
	}
	for _, port := range c.ports {
		releasePort(port)
	}
}

// removeContainer is best effort: the next test process removes what it leaves.
func removeContainer(ctx context.Context, cli *testcontainers.DockerClient, id string) {
	_, _ = cli.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
}

// removeContainersOfTheDead removes containers that have ended, and those of
// processes that have ended without removing them.
func removeContainersOfTheDead(ctx context.Context, cli *testcontainers.DockerClient) {
	list, err := cli.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: make(client.Filters).Add("label", ownerLabel),
	})
	if err != nil {
		return
	}
	for _, c := range list.Items {
		o, ok := parseOwner(c.Labels[ownerLabel])
		if c.State == container.StateExited || ok && o.dead() {
			removeContainer(ctx, cli, c.ID)
		}
	}
}
