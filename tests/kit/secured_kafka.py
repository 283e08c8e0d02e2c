"""A Kafka broker with a second listener, for TLS and passwords, next to the open one."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from txtopo.local.kafka import LocalKafka
from txtopo.local.processes import free_port

USER = "orders"
LISTENER = """\
listeners={listeners},SECURED://127.0.0.1:{port}
advertised.listeners={advertised},SECURED://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secured.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
log.cleaner.backoff.ms=200
"""


class SecuredKafka(LocalKafka):
    """A broker that also listens on `secured` with TLS and SCRAM, with a certificate of its own authority."""

    secured_port = 0

    @property
    def authority(self) -> Path:
        """Certificate of the authority, for `ssl.ca.location`."""
        return self.place / "authority.pem"

    @property
    def secured(self) -> str:
        """Value for `bootstrap.servers` of the secured listener."""
        return f"127.0.0.1:{self.secured_port}"

    def add_user(self, password: str) -> None:
        """Give `USER` this password."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        asked = [UserScramCredentialUpsertion(USER, info, password.encode())]
        admin.alter_user_scram_credentials(asked)[USER].result(30)

    @contextmanager
    def only_for_others(self, kind: ResourceType, name: str) -> Iterator[None]:
        """While it is open, `USER` has no right on a topic or group: others have one."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        one = (kind, name, ResourcePatternType.LITERAL, "User:other", "*")
        given = AclBinding(*one, AclOperation.READ, AclPermissionType.ALLOW)
        admin.create_acls([given])[given].result(30)
        try:
            yield
        finally:
            asked = AclBindingFilter(*one, AclOperation.ANY, AclPermissionType.ANY)
            admin.delete_acls([asked])[asked].result(30)

    def properties(self, password: str, authority: Path | None = None) -> str:
        """Return the lines of a properties file of a client."""
        return (
            f"bootstrap.servers={self.secured}\n"
            f"security.protocol=SASL_SSL\n"
            f"ssl.ca.location={authority or self.authority}\n"
            f"sasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.username={USER}\n"
            f"sasl.password={password}\n"
        )

    def _configure(self, port: int) -> None:
        super()._configure(port)
        keystore = self.place / "keystore.pem"
        if not keystore.exists():
            make_certificates(keystore, self.authority)
        self.secured_port = self.secured_port or free_port()
        settings = Path(self.marker)
        lines = settings.read_text(encoding="utf-8").splitlines(keepends=True)
        given = dict(line.rstrip("\n").split("=", 1) for line in lines)
        kept = [line for line in lines if "listeners=" not in line and not line.startswith("listener.security")]
        more = LISTENER.format(
            listeners=given["listeners"],
            advertised=given["advertised.listeners"],
            port=self.secured_port,
            keystore=keystore,
        )
        settings.write_text("".join(kept) + more, encoding="utf-8")


def make_certificates(keystore: Path, authority: Path) -> None:
    """Write a key with its certificate for 127.0.0.1, and the certificate of the authority that signed it."""
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority of a test")])
    root, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def signed(subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType) -> bytes:
        builder = x509.CertificateBuilder(name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1)).add_extension(extension, critical=False)
        certificate = builder.not_valid_after(now + datetime.timedelta(days=30)).sign(root, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    place = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    key = own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    keystore.write_bytes(key + signed(subject, own, place))
    authority.write_bytes(signed(name, root, x509.BasicConstraints(ca=True, path_length=None)))
