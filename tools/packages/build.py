"""A package of Debian's kind and one of Red Hat's, built by dpkg-deb and rpmbuild in a Debian of its own."""

import hashlib
import shlex
import textwrap

from layout import AFTER, AFTER_REMOVAL, BEFORE_REMOVAL, DESCRIPTION, SETTINGS, SUMMARY, files, lay

RELEASE = "1"


def script(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\nset -e\n{text}")
    path.chmod(0o755)


def deb(debian, archive, scratch, maintainer):
    """trawl_VERSION-1_ARCHITECTURE.deb below `scratch`."""
    found = files(archive, "/usr/share/zsh/vendor-completions")
    licence = b"Trawl is under the licence that follows; those of its libraries are in THIRD-PARTY-LICENSES.txt.\n\n"
    found["/usr/share/doc/trawl/copyright"] = (licence + found.pop("/usr/share/doc/trawl/LICENSE")[0], 0o644)
    staged = scratch / "deb"
    lay(found, staged)
    control = staged / "DEBIAN"
    control.mkdir()
    kib = -(-sum(len(content) for content, _ in found.values()) // 1024)
    said = "\n".join(f" {line}" for line in DESCRIPTION.splitlines())
    (control / "control").write_text(
        textwrap.dedent(f"""\
        Package: trawl
        Version: {archive.version}-{RELEASE}
        Architecture: {archive.deb}
        Maintainer: {maintainer}
        Installed-Size: {kib}
        Depends: libc6 (>= {archive.glibc()}), libgcc-s1, default-systemd-sysusers | systemd-standalone-sysusers | systemd-sysusers
        Suggests: etcd-server
        Section: science
        Priority: optional
        Description: {SUMMARY}
        """)
        + said
        + "\n"
    )
    (control / "conffiles").write_text("".join(f"/etc/trawl/{name}\n" for name in SETTINGS))
    sums = [f"{hashlib.md5(content).hexdigest()}  {path.lstrip('/')}\n" for path, (content, _) in sorted(found.items())]
    (control / "md5sums").write_text("".join(sums))
    script(control, "postinst", f'[ "$1" = configure ] || exit 0\n{AFTER}')
    script(control, "prerm", f'[ "$1" = remove ] || exit 0\n{BEFORE_REMOVAL}')
    script(control, "postrm", AFTER_REMOVAL)
    made = scratch / f"trawl_{archive.version}-{RELEASE}_{archive.deb}.deb"
    command = f"dpkg-deb --root-owner-group -Zxz --build {shlex.quote(str(staged))} {shlex.quote(str(made))}"
    if debian.inside(command, SOURCE_DATE_EPOCH=archive.when) != 0:
        raise RuntimeError(f"dpkg-deb failed, see {debian.log}")
    return made


SPEC = """\
Name: trawl
Version: {version}
Release: {release}
Summary: {summary}
License: Apache-2.0
%global _binary_payload w6.xzdio
%global __os_install_post %{{nil}}
%global debug_package %{{nil}}
%global _build_id_links none
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
# The same bytes wherever it is built.
%global _buildhost packages
Requires(post): systemd

%description
{description}

%install
cp -a {staged}/. %{{buildroot}}/

%post
{after}
%preun
if [ "$1" = 0 ]; then
{before}fi

%postun
{gone}
%files
%defattr(-,root,root)
{listed}
"""


def rpm(debian, archive, scratch):
    """trawl-VERSION-1.ARCHITECTURE.rpm below `scratch`."""
    found = files(archive, "/usr/share/zsh/site-functions")
    found["/usr/share/licenses/trawl/LICENSE"] = found.pop("/usr/share/doc/trawl/LICENSE")
    staged, top = scratch / "rpm-files", scratch / "rpm"
    lay(found, staged)
    top.mkdir()
    settings = {f"/etc/trawl/{name}" for name in SETTINGS}
    marks = lambda path: "%config(noreplace) " if path in settings else "%license " if "/licenses/" in path else "%doc " if "/doc/" in path else ""
    listed = ["%attr(0750,-,-) %dir /etc/trawl", *(f"%attr({mode:04o},-,-) {marks(path)}{path}" for path, (_, mode) in sorted(found.items()))]
    spec = top / "trawl.spec"
    parts = {"version": archive.version, "release": RELEASE, "summary": SUMMARY, "description": DESCRIPTION}
    parts |= {"staged": staged, "after": AFTER, "before": BEFORE_REMOVAL, "gone": AFTER_REMOVAL, "listed": "\n".join(listed)}
    spec.write_text(SPEC.format(**parts))
    command = f"rpmbuild -bb --quiet --target {archive.rpm}-linux --define '_topdir {top}' {shlex.quote(str(spec))}"
    if debian.inside(command, SOURCE_DATE_EPOCH=archive.when) != 0:
        raise RuntimeError(f"rpmbuild failed, see {debian.log}")
    (made,) = top.glob("RPMS/*/*.rpm")
    return made.rename(scratch / made.name)
