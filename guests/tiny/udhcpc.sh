#!/bin/busybox sh
# What udhcpc runs when a lease comes: address, mask, router, MTU, name servers, host name.
B=/bin/busybox
case "$1" in
bound|renew)
	$B ip addr flush dev "$interface"
	$B ip addr add "$ip/${mask:-24}" dev "$interface"
	[ -n "$mtu" ] && $B ip link set "$interface" mtu "$mtu"
	for r in $router; do
		$B ip route add "$r" dev "$interface" 2>/dev/null
		$B ip route replace default via "$r" dev "$interface"
	done
	: > /etc/resolv.conf
	[ -n "$search$domain" ] && echo "search ${search:-$domain}" >> /etc/resolv.conf
	for d in $dns; do echo "nameserver $d" >> /etc/resolv.conf; done
	[ -n "$hostname" ] && $B hostname "$hostname"
	;;
esac
exit 0
