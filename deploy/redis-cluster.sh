#!/bin/sh
# The Redis Cluster of compose.yaml, in containers of the Redis image.
#
#   redis-cluster.sh node     runs a node under this host's name
#   redis-cluster.sh create   makes a cluster of redis-1 to redis-6, or mends
#                             the addresses of the one that is there, and ends
#                             when every node serves
set -eu
nodes='redis-1 redis-2 redis-3 redis-4 redis-5 redis-6'

node() {
  # Clients are sent to names, since addresses change with each start. With
  # one master down the other slots still serve. Where limits live, nothing
  # may be evicted. The rest are states of minutes: no snapshots, no log.
  exec redis-server \
    --cluster-enabled yes \
    --cluster-node-timeout 2000 \
    --cluster-require-full-coverage no \
    --cluster-announce-hostname "$(hostname)" \
    --cluster-preferred-endpoint-type hostname \
    --maxmemory 128mb \
    --maxmemory-policy noeviction \
    --save '' \
    --appendonly no \
    --protected-mode no
}

# say NODE COMMAND... asks a node.
say() {
  host=$1
  shift
  redis-cli -h "$host" "$@"
}

address() {
  getent hosts "$1" | awk '{ print $1; exit }'
}

# known NODE reports whether the node is in a cluster already.
known() {
  [ "$(say "$1" cluster info | tr -d '\r' | sed -n 's/^cluster_known_nodes://p')" -gt 1 ]
}

whole() {
  for n in $nodes; do
    say "$n" cluster info | tr -d '\r' | grep -qx 'cluster_state:ok' || return 1
    [ "$(say "$n" cluster nodes | grep -cv -e fail -e handshake -e noaddr)" -eq 6 ] || return 1
  done
}

create() {
  found=0
  for n in $nodes; do
    if known "$n"; then found=$((found + 1)); fi
  done
  if [ $found = 0 ]; then
    addresses=
    for n in $nodes; do addresses="$addresses $(address "$n"):6379"; done
    # shellcheck disable=SC2086 # it is a list
    redis-cli --cluster create $addresses --cluster-replicas 1 --cluster-yes
  else
    echo "$found of 6 nodes are in a cluster; telling them where the others are"
    for n in $nodes; do
      for other in $nodes; do
        [ "$n" = "$other" ] || say "$n" cluster meet "$(address "$other")" 6379 >/dev/null
      done
    done
  fi
  tries=0
  until whole; do
    tries=$((tries + 1))
    if [ $tries -ge 60 ]; then
      say redis-1 cluster nodes
      echo 'the cluster does not come up' >&2
      exit 1
    fi
    sleep 1
  done
  say redis-1 cluster nodes
  echo 'the cluster is up'
}

"$1"
